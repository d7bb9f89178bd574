package component

import "context"

const kubeconformVersion = "0.8.0"

// Kubeconform is the command kubeconform, the file kubeconform in its folder: it compares manifests with JSON schemas. It
// can't be started.
func Kubeconform() Component {
	return Component{
		Name: "kubeconform", Version: kubeconformVersion, key: "kubeconform", tools: []string{"go"},
		fetch: func(ctx context.Context, dir string) error {
			return goInstall(ctx, dir, "github.com/yannh/kubeconform/cmd/kubeconform@v"+kubeconformVersion)
		},
	}
}
