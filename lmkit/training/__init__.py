"""How a model is trained: module, objective, optimizer, averaging, callbacks."""
