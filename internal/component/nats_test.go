package component

import (
	"testing"

	"github.com/nats-io/nats-server/v2/server"
)

func TestTheClustersVersionIsThatOfTheEmbeddedServer(t *testing.T) {
	if natsVersion != server.VERSION {
		t.Errorf("the cluster runs NATS %s, go.mod has %s", natsVersion, server.VERSION)
	}
}
