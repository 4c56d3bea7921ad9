"""Draft heads: layers that draft from a target's hidden states, from their published files."""
