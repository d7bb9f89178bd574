package servertest_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/muster-dev/muster/partition"
	"github.com/muster-dev/muster/partition/partitiontest/await"
	"github.com/muster-dev/muster/partition/servertest/natstest"
)

// jobsIn is the configuration of a group with that number of streams, on a server of its own.
func jobsIn(shards int) partition.Config {
	return partition.Config{Name: "worker", Stream: "jobs", Subject: "jobs.*.*", Slots: 64, Shards: shards}
}

// provisioned starts as many servers as the group has replicas, with a mapping for
// a number of streams, none for 0, and makes the group there.
func provisioned(t *testing.T, mapped int, cfg partition.Config) (*nats.Conn, jetstream.JetStream) {
	t.Helper()
	var servers []*natstest.Server
	if cfg.Storage.Replicas > 1 {
		servers = natstest.StartCluster(t, cfg.Storage.Replicas)
	} else {
		servers = append(servers, natstest.Start(t))
	}
	if from, to := jobsIn(mapped).Mapping(); to != "" {
		for _, s := range servers {
			s.Map(t, from, to)
		}
	}
	nc := natstest.Connect(t, natstest.URLs(servers))
	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(await.Patience))
	if err != nil {
		t.Fatal(err)
	}
	if err := partition.Open(nc, cfg.Name).Provision(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	return nc, js
}

// stored counts the messages of all streams of a group.
func stored(t *testing.T, js jetstream.JetStream, cfg partition.Config) (n uint64) {
	t.Helper()
	for _, name := range cfg.Streams() {
		s, err := js.Stream(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		n += s.CachedInfo().State.Msgs
	}
	return n
}

// TestThePublisherAndTheServersMappingChooseTheSameStream: with the mapping, a
// message that is published in the plain way and again in the other way is known by
// its ID; so both ways lead to one stream, and its acknowledgement says which.
func TestThePublisherAndTheServersMappingChooseTheSameStream(t *testing.T) {
	t.Parallel()
	for _, replicas := range []int{1, 3} {
		t.Run(fmt.Sprint(replicas, " replicas"), func(t *testing.T) {
			t.Parallel()
			cfg := jobsIn(4)
			cfg.Slots, cfg.Storage.Replicas = 8, replicas
			sameStream(t, cfg)
		})
	}
}

func sameStream(t *testing.T, cfg partition.Config) {
	nc, js := provisioned(t, cfg.Shards, cfg)
	if err := partition.Open(nc, cfg.Name).CheckMapping(t.Context()); err != nil {
		t.Errorf("the mapping is not found: %v", err)
	}
	numbers := map[uint64]string{}
	for i := range 200 {
		plain, id := fmt.Sprintf("jobs.tool%d.chamber%d", i/3, i%3), jetstream.WithMsgID(fmt.Sprint(i))
		first, err := js.Publish(t.Context(), plain, nil, id)
		if err != nil {
			t.Fatal(err)
		}
		direct, err := cfg.PublishSubject(plain)
		if err != nil {
			t.Fatal(err)
		}
		second, err := js.Publish(t.Context(), direct, nil, id)
		if err != nil {
			t.Fatal(err)
		}
		if !second.Duplicate || second.Stream != first.Stream || second.Sequence != first.Sequence {
			t.Errorf("%s: %+v, and as %s: %+v", plain, first, direct, second)
		}
		n, err := cfg.Sequence(first.Stream, first.Sequence)
		if err != nil {
			t.Fatal(err)
		}
		if other, ok := numbers[n]; ok {
			t.Errorf("%s and %s both have the number %d", plain, other, n)
		}
		numbers[n] = plain
	}
	if n := stored(t, js, cfg); n != 200 {
		t.Errorf("%d messages are stored, want 200", n)
	}
}

// TestAPublisherThatIsNotSetUpForTheStreamsIsRefused: without the mapping, or with
// that of another number of streams, a message is not put where nobody looks for
// it; and who asks is told.
func TestAPublisherThatIsNotSetUpForTheStreamsIsRefused(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ mapped, shards int }{{0, 4}, {2, 4}, {8, 4}, {4, 1}} {
		t.Run(fmt.Sprintf("mapped for %d of %d", tt.mapped, tt.shards), func(t *testing.T) {
			t.Parallel()
			cfg := jobsIn(tt.shards)
			nc, js := provisioned(t, tt.mapped, cfg)
			for i := range 3 {
				if ack, err := js.Publish(t.Context(), fmt.Sprintf("jobs.tool%d.chamber", i), nil); !errors.Is(err, jetstream.ErrNoStreamResponse) {
					t.Fatalf("published: %+v, %v", ack, err)
				}
			}
			if tt.shards > 1 {
				wrong := new(partition.MappingError)
				if err := partition.Open(nc, cfg.Name).CheckMapping(t.Context()); !errors.As(err, &wrong) || !strings.Contains(err.Error(), "no stream takes it") {
					t.Errorf("the check says %v", err)
				}
			}
			if n := stored(t, js, cfg); n != 0 {
				t.Errorf("%d messages are stored", n)
			}
		})
	}
}

// TestAMappingThatAnotherStreamTakesIsTold: an older group's stream still listens
// to the plain subject.
func TestAMappingThatAnotherStreamTakesIsTold(t *testing.T) {
	t.Parallel()
	cfg := jobsIn(4)
	nc, js := provisioned(t, 0, cfg)
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "older", Subjects: []string{cfg.Subject}}); err != nil {
		t.Fatal(err)
	}
	wrong := new(partition.MappingError)
	if err := partition.Open(nc, cfg.Name).CheckMapping(t.Context()); !errors.As(err, &wrong) || !strings.Contains(err.Error(), "another stream takes it") {
		t.Errorf("the check says %v", err)
	}
	s, err := js.Stream(t.Context(), "older")
	if err != nil {
		t.Fatal(err)
	}
	if n := s.CachedInfo().State.Msgs; n != 0 {
		t.Errorf("the check has stored %d messages", n)
	}
}

// TestTheNumberOfStreamsStays: a worker with another number is rejected, and
// its error names the field; what was provisioned can be read by those who only publish.
func TestTheNumberOfStreamsStays(t *testing.T) {
	t.Parallel()
	nc, js := provisioned(t, 4, jobsIn(4))
	for _, other := range []int{1, 2, 8} {
		for what, try := range map[string]func(partition.Config) error{
			"provisioning": func(c partition.Config) error { return partition.Open(nc, c.Name).Provision(t.Context(), c) },
			"a worker": func(c partition.Config) error {
				w, err := partition.New(nc, c, member{newRecorder(0), "w"})
				if err != nil {
					return err
				}
				return w.Run(t.Context())
			},
		} {
			if err := try(jobsIn(other)); err == nil || !strings.Contains(err.Error(), "Shards 4") || !strings.Contains(err.Error(), fmt.Sprint("configured for ", other)) {
				t.Errorf("%s with %d streams: %v", what, other, err)
			}
		}
	}
	names := js.StreamNames(t.Context())
	for name := range names.Name() {
		if name == "jobs" || name == "jobs-4" {
			t.Errorf("stream %s was made", name)
		}
	}
	if err := names.Err(); err != nil {
		t.Error(err)
	}
	c, err := partition.Open(nc, "worker").Config(t.Context())
	if err != nil || c.Shards != 4 || c.Stream != "jobs" || c.Subject != "jobs.*.*" || c.Slots != 64 {
		t.Errorf("provisioned is %+v, %v", c, err)
	}
	if v, err := partition.Open(nc, "worker").Inspect(t.Context()); err != nil || fmt.Sprint(v.Streams()) != "[jobs-0 jobs-1 jobs-2 jobs-3]" || v.Report().Shards != 4 {
		t.Errorf("seen are %+v, %v", v, err)
	}
}

// TestTheStreamsCanBeRecreatedWhereNobodyWorks: what docs/partition.md says of another
// number of them. The map stays, and with it who had what.
func TestTheStreamsCanBeRecreatedWhereNobodyWorks(t *testing.T) {
	t.Parallel()
	g := startGroup(t, sharded(t), 0)
	w := g.start("w0")
	await.That(t, "one worker settled", g.settled(w))
	g.publish(20, 1)
	g.check(0)
	w.stop()
	err := <-w.done
	w.done <- err
	if err != nil {
		t.Fatal(err)
	}
	if n := stored(t, g.pub, g.cfg); n != 0 {
		t.Fatalf("%d messages are left", n)
	}
	for _, name := range g.cfg.Streams() {
		if err := g.pub.DeleteStream(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	kv, err := g.pub.KeyValue(t.Context(), g.cfg.Name+"-assignments")
	if err != nil {
		t.Fatal(err)
	}
	if err := kv.Delete(t.Context(), "layout"); err != nil {
		t.Fatal(err)
	}
	g.cfg.Shards = 1 // which the server's mapping does not fit any more
	w = g.start("w1")
	await.That(t, "one worker settled again", g.settled(w))
	for key := range g.n {
		g.n[key]++
		// As a publisher that is set up for one stream, on a server that maps for four.
		if _, err := g.pub.Publish(t.Context(), strings.Replace(g.cfg.Subject, "*.*", key, 1), nil); !errors.Is(err, jetstream.ErrNoStreamResponse) {
			t.Fatalf("with the old mapping: %v", err)
		}
		break
	}
}

// TestALayoutThatIsNoneIsNotRead: a record that no version writes.
func TestALayoutThatIsNoneIsNotRead(t *testing.T) {
	t.Parallel()
	nc, js := provisioned(t, 4, jobsIn(4))
	kv, err := js.KeyValue(t.Context(), "worker-assignments")
	if err != nil {
		t.Fatal(err)
	}
	for _, record := range []string{"four", `{"schema":1,"slots":64,"stream":"jobs","subject":"jobs.*.*","shards":4}`, `{"schema":2,"slots":64,"stream":"jobs","subject":"jobs.*.*"}`,
		`{"schema":2,"slots":64,"stream":"jobs","subject":"jobs.*.*","shards":3}`, `{"schema":2,"slots":6400,"stream":"jobs","subject":"jobs.*.*","shards":100}`,
		`{"schema":2,"slots":64,"stream":"jobs","subject":"jobs.*.*","shards":-4}`, `{"schema":3,"slots":64,"stream":"jobs","subject":"jobs.*.*","shards":4}`} {
		if _, err := kv.Put(t.Context(), "layout", []byte(record)); err != nil {
			t.Fatal(err)
		}
		if c, err := partition.Open(nc, "worker").Config(t.Context()); err == nil {
			t.Errorf("%s is read as %+v", record, c)
		}
		if err := partition.Open(nc, "worker").Provision(t.Context(), jobsIn(4)); err == nil {
			t.Errorf("%s is provisioned over", record)
		}
	}
}
