"""Cases of elastic callbacks for framework_cases.py, on the backend of KERAS_BACKEND."""

import keras
from cases_elastic_states import fit, make

import ringcomm.keras as hvd


class Watch(keras.callbacks.Callback):
    """A callback that notes the state's (epoch, batch) at the end of each batch and epoch."""

    def __init__(self, state):
        super().__init__()
        self.state, self.batches, self.epochs = state, [], []

    def on_train_batch_end(self, batch, logs=None):
        self.batches.append((self.state.epoch, self.state.batch))

    def on_epoch_end(self, epoch, logs=None):
        self.epochs.append((self.state.epoch, self.state.batch))


def watched(state, **options):
    watch = Watch(state)
    updates = hvd.elastic.UpdateEpochStateCallback(state), hvd.elastic.UpdateBatchStateCallback(state)
    fit(state.model, [*updates, watch], **options)
    return watch


def case_epochs_and_batches_are_noted():
    state = hvd.elastic.KerasState(make(run_eagerly=True), batch=0, epoch=0)
    watch = watched(state, steps=3, epochs=2)
    assert watch.batches == [(0, 1), (0, 2), (0, 3), (1, 1), (1, 2), (1, 3)]
    assert watch.epochs == [(1, 0), (2, 0)]


def case_an_epoch_that_was_begun_is_finished_and_no_more():
    for options in ({}, {"initial_epoch": 5, "epochs": 7}):
        state = hvd.elastic.KerasState(make(run_eagerly=True), batch=2, epoch=5)
        watch = watched(state, **({"steps": 3, "epochs": 2} | options))
        assert watch.batches == [(5, 3), (6, 1), (6, 2), (6, 3)], options
        assert watch.epochs == [(6, 0), (7, 0)] and not state.model.stop_training


def case_whoever_stops_the_training_after_it_does():
    state = hvd.elastic.KerasState(make(run_eagerly=True), batch=2, epoch=0)
    stop = keras.callbacks.EarlyStopping(monitor="loss", patience=0, min_delta=1e9)
    fit(state.model, [hvd.elastic.UpdateBatchStateCallback(state), stop], steps=3, epochs=9)
    assert len(stop.model.history.epoch) < 9


def case_commits_are_counted_from_the_beginning_of_fit():
    commits = []

    class State:
        def commit(self):
            commits.append(len(commits))

    callback = hvd.elastic.CommitStateCallback(State(), batches_per_commit=3)
    fit(make(run_eagerly=True), [callback], steps=4, epochs=2)
    assert len(commits) == 2 + 2  # after batches 3 and 6, and at the end of each epoch
    fit(make(run_eagerly=True), [callback], steps=2)
    assert len(commits) == 4 + 1
