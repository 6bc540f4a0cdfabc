"""MLflow: a run that resumes goes on with the record that it began."""

from typing import TYPE_CHECKING

from pytorch_lightning.loggers import MLFlowLogger as LightningsLogger

if TYPE_CHECKING:
    from mlflow import MlflowClient


class MLFlowLogger(LightningsLogger):
    """Lightning's, which by itself begins another record in each process that trains the run."""

    @property
    def experiment(self) -> "MlflowClient":
        """The client; its first use finds the unfinished record of this name, or begins one."""
        if self._run_id is None:
            client = self._mlflow_client
            if found := client.get_experiment_by_name(self._experiment_name):
                name = f"attributes.run_name = '{self._run_name}'"
                begun = f"{name} and attributes.status != 'FINISHED'"
                for run in client.search_runs([found.experiment_id], begun, max_results=1):
                    self._run_id = run.info.run_id
        return super().experiment
