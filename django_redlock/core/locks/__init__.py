"""The lock handles that applications use, and the parts that they share."""
