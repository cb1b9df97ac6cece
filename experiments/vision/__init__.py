"""The vision experiments: images, a frozen backbone, cached features, and models fine-tuned on them."""
