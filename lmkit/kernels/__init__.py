"""Products, LSTM and Transformer steps written for a device."""
