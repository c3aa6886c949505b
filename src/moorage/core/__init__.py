"""Names, errors, states, time and ids. Standard library only; everything else may import it."""
