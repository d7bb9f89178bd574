package nodes

import (
	"context"
	"errors"
	"log/slog"
	"strings"

	"github.com/muster-dev/muster/nodes/connect"
	"github.com/muster-dev/muster/nodes/workers"
	"github.com/muster-dev/muster/setting"
)

// workersGroup is the settings of who is asked to hand over before a node goes. They are apart from package connect's, because the
// functions don't link what talks to workers: there a pod's own SIGTERM is the request.
func workersGroup() connect.Group {
	return connect.Group{Name: "Workers", Settings: workers.Settings()}
}

// plane is an opened node plane with its workers.
type plane struct {
	*connect.Plane
	follow func(ctx context.Context) error // tells the workers how many they should be; nil: there is nothing to tell
	close  func() error
}

// openPlane opens everything that the settings name. The error is a *setting.Error if they are wrong.
func openPlane(ctx context.Context, lookup setting.Lookup, o connect.Options) (*plane, error) {
	s, err := connect.Parse(lookup)
	w, workersErr := workers.ConfigFromEnv(lookup)
	if err := setting.Join(err, workersErr); err != nil {
		return nil, err
	}
	o.Local = localStore{}
	opened, err := connect.Open(ctx, s, o)
	if err != nil {
		return nil, err
	}
	asked, end, err := workers.Open(w)
	if err != nil {
		return nil, errors.Join(err, opened.Close())
	}
	p := &plane{Plane: opened, close: func() error { return errors.Join(end(), opened.Close()) }}
	if asked == nil {
		return p, nil
	}
	p.Config.WorkerPlane = asked
	if namespace, name, ok := strings.Cut(w.Deployment, "/"); ok {
		p.follow = func(ctx context.Context) error {
			log := o.Log
			if log == nil {
				log = slog.Default()
			}
			return asked.Follow(ctx, o.Clock, log, func(ctx context.Context) (int, error) { return opened.Replicas(ctx, namespace, name) })
		}
	}
	return p, nil
}
