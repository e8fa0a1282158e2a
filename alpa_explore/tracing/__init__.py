"""The outside world to a TrainingGraph: models through AOTAutograd's joint graph on fake tensors."""
