"""What talks to devices. `base` is the contract; `simulated` needs no hardware."""
