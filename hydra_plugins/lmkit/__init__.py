"""What lmkit adds to Hydra: the sweeper behind `lmkit train --multirun`."""
