"""Values that the state holds: `layouts`, what is known of uniform layouts and of where a model fits."""
