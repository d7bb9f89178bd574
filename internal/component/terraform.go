package component

import "context"

const terraformProviderVersion = "21.22.1" // of the bindings, which are of the provider's 6.25.0

// TerraformProvider is the wheel of the Python bindings of Terraform's AWS provider, in its folder: classes that HashiCorp generated
// from the provider's schema. The provider itself is in no package registry. The bindings are read, and never run.
func TerraformProvider() Component {
	return Component{
		Name: "cdktf-cdktf-provider-aws", Version: terraformProviderVersion, key: "terraform-provider", tools: []string{"python3"},
		fetch: func(ctx context.Context, dir string) error {
			return command(ctx, dir, "python3", "-m", "pip", "download", "--quiet", "--no-input", "--no-deps", "--only-binary", ":all:",
				"cdktf-cdktf-provider-aws=="+terraformProviderVersion)
		},
	}
}
