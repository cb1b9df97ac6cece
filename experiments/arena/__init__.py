"""The arena: outputs of models before and after updates, on which any label-free score can be tried in a minute."""
