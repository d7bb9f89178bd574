"""Equipment of the library secsgem, for tests of the host.

HSMS, SECS-II, the states of GEM, reports, events, alarms, remote commands and terminal are
the library's. It has no traces and no spool: these are here, over its messages. The clock
is one of samples, so that a slow machine doesn't change what a run has.

    equipment.py RUNS SAMPLES

It says its port, does RUNS runs of SAMPLES samples once a host has started a trace, says on its output what they were,
and serves until its input ends.
"""

import datetime
import json
import logging
import socket
import sys
import threading

import secsgem.common
import secsgem.gem
import secsgem.hsms
import secsgem.secs
from secsgem.secs.variables import F8, I4, String, U1

PERIOD = datetime.timedelta(milliseconds=100)
CLOCK, RUN, RECIPE, STEP, PRESSURE, POWER = 1001, 2, 3, 4, 10, 11
START, END, ALARM_ON, ALARM_OFF = 1101, 1102, 1201, 1202
ALARM = 77


def say(what, value):
    print(json.dumps({what: value}), flush=True)


class Protocol(secsgem.hsms.HsmsProtocol):
    def _on_connected(self, _):
        """Is connected before it reads: the library does it the other way round, and fails if
        the host selects the session at once."""
        self._connected = True
        self._connection_state.connect()
        self._thread.start()
        self.events.fire("connected", {"connection": self})


class Settings(secsgem.hsms.HsmsSettings):
    def create_protocol(self):
        return Protocol(self)


class Equipment(secsgem.gem.GemEquipmentHandler):
    def __init__(self, port):
        super().__init__(Settings(
            address="127.0.0.1", port=port, connect_mode=secsgem.hsms.HsmsConnectMode.PASSIVE,
            device_type=secsgem.common.DeviceType.EQUIPMENT, t3=5, establish_communication_timeout=1,
        ))
        self.now = datetime.datetime(2026, 3, 1, 12)
        for svid, name, kind in ((RUN, "Run", String), (RECIPE, "Recipe", String), (STEP, "Step", U1), (PRESSURE, "Pressure", F8), (POWER, "Power", I4)):
            self.status_variables[svid] = secsgem.gem.StatusVariable(svid, name, "", kind, False)
        for ceid, name in ((START, "Started"), (END, "Ended"), (ALARM_ON, "AlarmOn"), (ALARM_OFF, "AlarmOff")):
            self.collection_events[ceid] = secsgem.gem.CollectionEvent(ceid, name, [])
        self.alarms[ALARM] = secsgem.gem.Alarm(ALARM, "Door", "door is open", 4, ALARM_ON, ALARM_OFF)
        self.remote_commands["HOLD"] = secsgem.gem.RemoteCommand("HOLD", "Hold", ["CHAMBER"], 20)
        self.callbacks.rcmd_HOLD = lambda CHAMBER: say("command", "HOLD " + CHAMBER)
        self.register_stream_function(2, 23, self.start_trace)
        self.register_stream_function(2, 43, self.choose_spooled)
        self.register_stream_function(6, 23, self.unload)
        self.register_stream_function(10, 3, self.show)
        self.trace = None
        self.traced = threading.Event()
        self.spool = []
        self.asked = threading.Event()

    def _get_clock(self):
        return self.now.strftime("%Y%m%d%H%M%S") + "%02d" % (self.now.microsecond // 10000)

    def decode(self, message):
        return self.settings.streams_functions.decode(message)

    def start_trace(self, _, message):
        wanted = self.decode(message)
        svids = list(wanted.SVID.get())
        if any(svid not in self.status_variables for svid in svids):
            return self.stream_function(2, 24)(4)
        self.trace = {"id": wanted.TRID.get(), "group": wanted.REPGSZ.get(), "svids": svids, "number": 0, "values": []}
        say("trace", {"period": wanted.DSPER.get(), "svids": svids})
        self.traced.set()
        return self.stream_function(2, 24)(0)

    def choose_spooled(self, *_):
        return self.stream_function(2, 44)({"RSPACK": 0, "DATA": []})

    def unload(self, *_):
        if not self.spool:
            return self.stream_function(6, 24)(2)
        self.asked.set()
        return self.stream_function(6, 24)(0)

    def show(self, _, message):
        say("terminal", self.decode(message).TEXT.get())
        return self.stream_function(10, 4)(0)

    def deliver(self, function):
        """Sends a message and waits for its answer if it has one, or spools it."""
        self.spool.append(function)
        while self.spool and (len(self.spool) == 1 or self.asked.is_set()):
            # The library's S6F1 wants no answer.
            send = self.send_and_waitfor_response if self.spool[0].is_reply_required else self.send_stream_function
            if not self.communicating() or not send(self.spool[0]):
                self.asked.clear()
                return
            self.spool.pop(0)
        if not self.spool:
            self.asked.clear()

    def communicating(self):
        return self.communication_state.current == secsgem.gem.communication_state_machine.CommunicationState.COMMUNICATING

    def drain(self):
        """Waits until the spool is empty."""
        while self.spool:
            self.asked.wait()
            self.deliver(self.spool.pop())

    def event(self, ceid):
        link = self.registered_collection_events.get(ceid)
        if link is not None and link.enabled:
            self.deliver(self.stream_function(6, 11)({"DATAID": 1, "CEID": ceid, "RPT": self._build_collection_event(ceid)}))

    def sample(self, n):
        self.now += PERIOD
        values = {STEP: n % 2 + 1, PRESSURE: n / 7, POWER: -n}
        for svid, value in values.items():
            self.status_variables[svid].value = value
        trace = self.trace
        trace["number"] += 1
        trace["values"] += [self.status_variables[svid].value for svid in trace["svids"]]
        if trace["number"] % trace["group"] == 0:
            kinds = [self.status_variables[svid].value_type for svid in trace["svids"]] * trace["group"]
            values = [kind(value) for kind, value in zip(kinds, trace["values"])]
            self.deliver(self.stream_function(6, 1)({"TRID": trace["id"], "SMPLN": trace["number"], "STIME": self._get_clock(), "SV": values}))
            trace["values"] = []

    def work(self, runs, samples):
        self.traced.wait()
        n = 0
        for r in range(runs):
            for _ in range(3):
                n += 1
                self.sample(n)
            self.status_variables[RUN].value = "lot1.w%d" % r
            self.status_variables[RECIPE].value = "etch/%d" % (r % 2)
            say("run", {"name": "lot1.w%d" % r, "first": n, "samples": samples + 1})
            self.event(START)
            for _ in range(samples):
                n += 1
                self.sample(n)
            self.event(END)
            if r == 0:
                self.set_alarm(ALARM)
        for _ in range(20):
            n += 1
            self.sample(n)
        self.drain()
        say("done", n)


def main():
    logging.basicConfig(level=logging.ERROR)
    runs, samples = (int(a) for a in sys.argv[1:])
    # Only now, when all is imported: until it is bound, any other process may take it.
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    equipment = Equipment(port)
    equipment.enable()
    worker = threading.Thread(target=equipment.work, args=(runs, samples), daemon=True)
    worker.start()
    say("ready", port)
    sys.stdin.read()


main()
