package main

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/muster-dev/muster/examples/internal/program"
	"github.com/muster-dev/muster/partition"
	"github.com/muster-dev/muster/partition/partitiontest/await"
	"github.com/muster-dev/muster/partition/servertest/natstest"
)

// process is the program, as a worker.
type process struct{ *program.Process }

func start(t *testing.T, built, url string) process {
	t.Helper()
	return process{program.Start(t, built, "--nats", url, "--expected", "3")}
}

// get asks the process for /metrics or /ready; "" without an answer of 200.
func (p process) get(t *testing.T, path string) string {
	t.Helper()
	_, after, ok := strings.Cut(p.Output(), "at=")
	if !ok {
		return ""
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+strings.Fields(after)[0]+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return ""
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		return ""
	}
	return string(body)
}

func (p process) ready(t *testing.T) bool { return p.get(t, "/ready") != "" }

func (p process) leads(t *testing.T) bool {
	return strings.Contains(p.get(t, "/metrics"), `muster_partition_is_leader{group="orders"} 1`)
}

// TestOrders: three processes book the orders of 20 customers. One order panics every time it is
// tried, and the leader is killed. Every other order is booked once, in order; the bad one is a
// dead letter with its stack; and no process but the killed one has ended.
func TestOrders(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t, natstest.In(t.TempDir()))
	nc := natstest.Connect(t, s.URL())
	built := program.Build(t)
	var processes []process
	for range 3 {
		processes = append(processes, start(t, built, s.URL()))
	}
	for _, p := range processes {
		await.That(t, "a process is ready", func() bool { return p.ready(t) })
	}

	const (
		each      = 30 // orders of a customer
		badNumber = 7
	)
	bad := customer(4)
	publishFrom := func(from, to int) {
		publisher, err := partition.Open(nc, groupName).Publisher(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for number := from; number < to; number++ {
			for i := range customers {
				o := order{Number: number, Cents: 100, Class: i % len(discounts)}
				if customer(i) == bad && number == badNumber {
					o.Class = len(discounts)
				}
				if err := publishOrder(t.Context(), publisher, customer(i), o); err != nil {
					t.Fatal(err)
				}
			}
		}
	}

	publishFrom(0, each/2)
	killed := killLeader(t, processes)
	publishFrom(each/2, each)

	books, err := openAccounts(t.Context(), nc)
	if err != nil {
		t.Fatal(err)
	}
	for i := range customers {
		want := each
		if customer(i) == bad {
			want--
		}
		await.That(t, "every order is booked", func() bool {
			a, _, err := books.read(t.Context(), customer(i))
			return err == nil && len(a.Orders) >= want
		})
		a, _, err := books.read(t.Context(), customer(i))
		if err != nil {
			t.Fatal(err)
		}
		checkOrders(t, customer(i), a.Orders, each, customer(i) == bad, badNumber)
	}
	checkDeadLetter(t, nc, bad, badNumber)
	for _, p := range processes {
		if p != killed && (!p.Alive() || !p.ready(t)) {
			t.Errorf("a process that was not killed has ended or is not ready; it printed\n%s", p.Output())
		}
	}
}

// killLeader kills the process of the leader, as kill -9 does.
func killLeader(t *testing.T, processes []process) process {
	t.Helper()
	var leader process
	await.That(t, "one of the processes leads", func() bool {
		for _, p := range processes {
			if p.leads(t) {
				leader = p
			}
		}
		return leader.Process != nil
	})
	leader.Kill()
	return leader
}

// checkOrders: a customer's orders are all there, each once, in their order.
func checkOrders(t *testing.T, name string, got []int, each int, hasBad bool, badNumber int) {
	t.Helper()
	next := 0
	for _, number := range got {
		if hasBad && next == badNumber {
			next++
		}
		if number != next {
			t.Errorf("%s: order %d was booked where %d was expected: %v", name, number, next, got)
			return
		}
		next++
	}
	if next != each {
		t.Errorf("%s: %d orders are booked, want %d", name, next, each)
	}
}

// checkDeadLetter: the order that can't be booked is the only dead letter, with what went wrong.
func checkDeadLetter(t *testing.T, nc *nats.Conn, name string, number int) {
	t.Helper()
	var letters []partition.DeadLetter
	await.That(t, "there is a dead letter", func() bool {
		var err error
		letters, err = partition.Open(nc, groupName).DeadLetters(t.Context(), 0, 10)
		return err == nil && len(letters) > 0
	})
	l := letters[0]
	var o order
	if err := json.Unmarshal(l.Data, &o); err != nil || o.Number != number || l.Key != name {
		t.Errorf("the dead letter is order %+v of %s, want number %d of %s", o, l.Key, number, name)
	}
	if len(letters) != 1 || !strings.Contains(l.Stack, "accounts.go") || !strings.Contains(l.Err, "index out of range") {
		t.Errorf("%d dead letters; error %q, stack\n%s", len(letters), l.Err, l.Stack)
	}
	t.Logf("dead letter after %d attempts: %s", l.Attempts, l.Err)
}
