"""What is measured of finished runs and of pretrained models: a question each."""
