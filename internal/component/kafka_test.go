package component

import (
	"strings"
	"testing"
)

func TestTheNodesOfAKafkaClusterNameEachOther(t *testing.T) {
	t.Parallel()
	one := kafkaNodes{{1001, 2001}}
	three := kafkaNodes{{1001, 2001}, {1002, 2002}, {1003, 2003}}
	for _, c := range []struct {
		config string
		lines  []string
	}{
		{one.config(0, "/logs"), []string{"node.id=1", "controller.quorum.bootstrap.servers=127.0.0.1:2001", "offsets.topic.replication.factor=1", "transaction.state.log.min.isr=1"}},
		{three.config(1, "/logs"), []string{"node.id=2", "controller.quorum.voters=1@127.0.0.1:2001,2@127.0.0.1:2002,3@127.0.0.1:2003",
			"listeners=PLAINTEXT://127.0.0.1:1002,CONTROLLER://127.0.0.1:2002", "offsets.topic.replication.factor=3", "transaction.state.log.min.isr=2"}},
	} {
		for _, line := range c.lines {
			if !strings.Contains(c.config, line+"\n") {
				t.Errorf("%q is not a line of\n%s", line, c.config)
			}
		}
	}
}
