"""Simulates the Tennessee Eastman process in closed loop and writes its traces as CSV.

    python generate.py SEED RUN_HOURS > seed1.csv
    python generate.py SEED RUN_HOURS RUNS DISTURBANCES > small.csv

After 30 h of warm-up that nobody sees, 200 runs of RUN_HOURS follow each other without a
break: the process is continuous, and a run is a part of its time with 50 samples. Beside
them each of the disturbances IDV 1 to 21 begins after 60 runs, in a plant that is in the
same state then, and has 8 runs or as many as the plant survives. Sensors are XMEAS 1 to 41
and XMV 1 to 11. RUNS and DISTURBANCES are for tests: fewer of them.

The plant is tep-studio's: the revised model of Bathelt, Ricker and Jelali (2015) with
Ricker's decentralized control (1996), mode 1.
"""

import copy
import sys

import numpy as np
from tep_studio.control.controller import RickerMultiLoopController
from tep_studio.simulation.core import TennesseeEastmanProcess

WARM_UP_HOURS = 30.0
UNDISTURBED_RUNS = 200
ONSET = 60
DISTURBED_RUNS = 8
DISTURBANCES = 21
SAMPLES = 50
INTERVAL = 0.0005  # hours; of control and integration


class Plant:
    """A plant with its controller, which can be copied in the middle of its course."""

    def __init__(self, seed):
        self.process = TennesseeEastmanProcess()
        self.controller = RickerMultiLoopController()
        self.measured, _ = self.process.reset(mode="mode1", seed=seed)
        self.controller.reset(self.measured, time=self.process.time)
        self.disturbances = np.zeros(28)

    def fork(self):
        """Returns a plant that goes on from here by itself."""
        other = object.__new__(Plant)
        other.process = TennesseeEastmanProcess()
        other.process.reset(mode="mode1")
        other.process.restore(self.process.snapshot())
        other.controller = copy.deepcopy(self.controller)
        other.measured = self.measured.copy()
        other.disturbances = self.disturbances.copy()
        return other

    def advance(self, hours):
        """Goes on for some hours and returns the last values, or None if the plant trips."""
        for _ in range(round(hours / INTERVAL)):
            action, _ = self.controller.compute_action(self.measured, time=self.process.time)
            result = self.process.advance(action, control_interval=INTERVAL, disturbances=self.disturbances)
            self.measured = result.measurements
            if result.shutdown_status["terminated"]:
                return None
        return np.concatenate([result.measurements, result.implemented_action[:11]])

    def run(self, hours):
        """Returns the samples of a run, or None if the plant trips in it."""
        samples = []
        for _ in range(SAMPLES):
            values = self.advance(hours / SAMPLES)
            if values is None:
                return None
            samples.append(values)
        return samples


def write(chamber, name, fault, hours, samples):
    for i, values in enumerate(samples):
        row = [chamber, name, fault, f"{i * hours / SAMPLES * 3600:.1f}"] + [f"{v:.7g}" for v in values]
        print(",".join(row))


def main():
    seed, hours = int(sys.argv[1]), float(sys.argv[2])
    runs, disturbances = UNDISTURBED_RUNS, DISTURBANCES
    if len(sys.argv) > 3:
        runs, disturbances = int(sys.argv[3]), int(sys.argv[4])
    chamber = f"tep:seed{seed}"
    sensors = [f"XMEAS {i + 1}" for i in range(41)] + [f"XMV {i + 1}" for i in range(11)]
    print(",".join(["chamber", "name", "fault", "Time"] + sensors))
    plant = Plant(float(1000 + seed))
    if plant.advance(WARM_UP_HOURS) is None:
        sys.exit("the plant tripped while it warmed up")
    for run in range(1, runs + 1):
        write(chamber, f"r{run:03d}", "", hours, plant.run(hours))
        if run != ONSET:
            continue
        for number in range(1, disturbances + 1):
            disturbed = plant.fork()
            disturbed.disturbances[number - 1] = 1.0
            for after in range(1, DISTURBED_RUNS + 1):
                samples = disturbed.run(hours)
                if samples is None:
                    break
                write(chamber, f"idv{number:02d}-{after}", f"IDV {number}", hours, samples)


if __name__ == "__main__":
    main()
