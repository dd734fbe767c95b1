"""How PyTorch is watched; with the integrations the only home of torch."""
