"""What lmkit adds to Hydra: the sweeper and the launchers behind `lmkit train --multirun`."""
