package handoff

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/muster-dev/muster/internal/component"
)

const (
	kafkaTopic    = "dc"
	consumerGroup = "bench"
)

// Timers of fast groups. Workers of Muster are probed as often, and their leases end after as
// long; a shorter session of classic groups is what brokers reject by default.
const (
	fastHeartbeat = 100 * time.Millisecond
	fastSession   = 6 * time.Second
)

// kafkaSetting is how a broker and the members of a group are set, beyond their defaults.
type kafkaSetting struct {
	next      bool          // the broker assigns, by KIP-848; else members do, cooperatively
	heartbeat time.Duration // 0 for the defaults: 3 s, and 5 s by KIP-848
	session   time.Duration // 0 for the default: 45 s
	flush     bool          // the broker syncs each batch before it acknowledges it
}

// fast returns the setting with short timers.
func (k kafkaSetting) fast() *kafkaSetting {
	k.heartbeat, k.session = fastHeartbeat, fastSession
	return &k
}

func (k kafkaSetting) sessionTimeout() time.Duration {
	if k.session == 0 {
		return 45 * time.Second
	}
	return k.session
}

// broker returns the settings of the broker. By KIP-848 it rules heartbeats and sessions, and
// collects changes for a second before it assigns.
func (k kafkaSetting) broker() []string {
	settings := []string{"group.initial.rebalance.delay.ms=0"}
	if k.flush {
		settings = append(settings, "log.flush.interval.messages=1")
	}
	if k.next && k.heartbeat > 0 {
		settings = append(settings,
			fmt.Sprintf("group.consumer.min.heartbeat.interval.ms=%d", k.heartbeat.Milliseconds()),
			fmt.Sprintf("group.consumer.heartbeat.interval.ms=%d", k.heartbeat.Milliseconds()),
			fmt.Sprintf("group.consumer.min.session.timeout.ms=%d", k.session.Milliseconds()),
			fmt.Sprintf("group.consumer.session.timeout.ms=%d", k.session.Milliseconds()),
			"group.consumer.assignment.interval.ms=0")
	}
	return settings
}

// serve starts a broker for each replica, all at once, since those of a cluster wait for each other.
func (k kafkaSetting) serve(ctx context.Context, replicas int) (servers, string, error) {
	nodes := []component.Component{component.Kafka(k.broker()...)}
	if replicas > 1 {
		var err error
		if nodes, err = component.KafkaCluster(replicas, k.broker()...); err != nil {
			return nil, "", err
		}
	}

	started := make([]*component.Server, len(nodes))
	errs := make([]error, len(nodes))
	var all sync.WaitGroup
	for i, c := range nodes {
		all.Go(func() { started[i], errs[i] = c.Launch(ctx) })
	}
	all.Wait()

	var up servers
	var addresses []string
	for i, s := range started {
		if errs[i] == nil {
			up, addresses = append(up, kafkaServer{s}), append(addresses, s.Addr)
		}
	}
	if err := errors.Join(errs...); err != nil {
		up.stop()
		return nil, "", err
	}
	return up, strings.Join(addresses, ","), nil
}

type kafkaServer struct{ *component.Server }

func (s kafkaServer) pid() int { return s.Pid() }
func (s kafkaServer) stop()    { s.Close(stopTime) }

// kafkaGroup is what groups on Kafka have in common: a topic, producers of franz-go with their
// defaults and what is known of keys and partitions.
type kafkaGroup struct {
	env
	producer *kgo.Client // of single messages, which it doesn't delay
	filler   *kgo.Client // of many

	mu      sync.Mutex
	moving  func([]int)
	keysOf  map[int32][]int // by partition
	located map[int]bool    // keys in keysOf
}

func newKafkaGroup(ctx context.Context, e env) (*kafkaGroup, error) {
	g := &kafkaGroup{env: e, keysOf: map[int32][]int{}, located: map[int]bool{}}
	options := []kgo.Opt{kgo.SeedBrokers(strings.Split(e.url, ",")...), kgo.DefaultProduceTopic(kafkaTopic)}
	var err error
	if g.filler, err = kgo.NewClient(options...); err != nil {
		return nil, fmt.Errorf("connecting to Kafka: %w", err)
	}
	if g.producer, err = kgo.NewClient(append(options, kgo.ProducerLinger(0))...); err != nil {
		g.filler.Close()
		return nil, fmt.Errorf("connecting to Kafka: %w", err)
	}
	if err := g.createTopic(ctx); err != nil {
		g.close()
		return nil, err
	}
	return g, nil
}

func (g *kafkaGroup) close() {
	g.producer.Close()
	g.filler.Close()
}

// createTopic makes the topic, whose messages have the time at which the broker stored them. With
// three copies two must have a message before it is acknowledged, as Kafka's documentation of
// min.insync.replicas advises; Raft's majority is the same.
func (g *kafkaGroup) createTopic(ctx context.Context) error {
	stamp, least := "LogAppendTime", strconv.Itoa(g.replicas/2+1)
	request := kmsg.NewPtrCreateTopicsRequest()
	request.TimeoutMillis = int32(settleTime.Milliseconds())
	topic := kmsg.NewCreateTopicsRequestTopic()
	topic.Topic, topic.NumPartitions, topic.ReplicationFactor = kafkaTopic, int32(g.Slots), int16(g.replicas)
	topic.Configs = []kmsg.CreateTopicsRequestTopicConfig{{Name: "message.timestamp.type", Value: &stamp}, {Name: "min.insync.replicas", Value: &least}}
	request.Topics = append(request.Topics, topic)
	response, err := request.RequestWith(ctx, g.producer)
	if err == nil {
		err = kerr.ErrorForCode(response.Topics[0].ErrorCode)
	}
	if err != nil {
		return fmt.Errorf("making topic %s: %w", kafkaTopic, err)
	}
	return nil
}

func record(m message) *kgo.Record {
	return &kgo.Record{Key: []byte(strconv.Itoa(m.key)), Value: m.encode()}
}

func (g *kafkaGroup) send(ctx context.Context, m message) error {
	r, err := g.producer.ProduceSync(ctx, record(m)).First()
	if err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.located[m.key] {
		g.located[m.key] = true
		g.keysOf[r.Partition] = append(g.keysOf[r.Partition], m.key)
	}
	return nil
}

func (g *kafkaGroup) fill(ctx context.Context, ms []message) error {
	var mu sync.Mutex
	var failed error
	for _, m := range ms {
		g.filler.Produce(ctx, record(m), func(_ *kgo.Record, err error) {
			if err != nil {
				mu.Lock()
				failed = err
				mu.Unlock()
			}
		})
	}
	err := g.filler.Flush(ctx)
	mu.Lock()
	defer mu.Unlock()
	return errors.Join(err, failed)
}

// any returns all keys: which ones will move is decided by a member, or the broker, in the
// middle of the change.
func (g *kafkaGroup) any() []int {
	keys := make([]int, g.Keys)
	for i := range keys {
		keys[i] = i
	}
	return keys
}

// announce tells Kafka nothing: no member knows how many there will be.
func (g *kafkaGroup) announce(_ context.Context, _ int, moving func([]int)) error {
	g.tell(moving)
	return nil
}

// tell sets who is told which keys are on their way.
func (g *kafkaGroup) tell(moving func([]int)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.moving = moving
}

// revoked tells which keys are on their way.
func (g *kafkaGroup) revoked(partitions []int32) {
	g.mu.Lock()
	tell := g.moving
	var keys []int
	for _, p := range partitions {
		keys = append(keys, g.keysOf[p]...)
	}
	g.mu.Unlock()
	if tell != nil && len(keys) > 0 {
		slices.Sort(keys)
		tell(keys)
	}
}

// shared waits until n members have all partitions, and each its share.
func (g *kafkaGroup) shared(ctx context.Context, n int, count func(worker int) int) error {
	var counts []int
	err := eventually(ctx, fmt.Sprintf("%d members have their share", n), func() bool {
		counts = counts[:0]
		all := 0
		for i := range n {
			counts = append(counts, count(i))
			all += counts[i]
		}
		return all == g.Slots && slices.Max(counts)-slices.Min(counts) <= 1
	})
	if err != nil {
		return fmt.Errorf("%w; they have %d", err, counts)
	}
	return nil
}
