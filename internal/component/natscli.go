package component

import "context"

const natsCLIVersion = "0.4.0"

// NATSCLI is the command nats, the file nats in its folder. It can't be started.
func NATSCLI() Component {
	return Component{
		Name: "nats", Version: natsCLIVersion, key: "natscli", tools: []string{"go"},
		fetch: func(ctx context.Context, dir string) error {
			return goInstall(ctx, dir, "github.com/nats-io/natscli/nats@v"+natsCLIVersion)
		},
	}
}
