package main

import (
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/component-base/featuregate"
)

// evictionRequests returns the flags with which an API server serves EvictionRequests. Kubernetes has them from 1.37 on, as an alpha
// feature; an earlier one would reject the flags.
func evictionRequests() []string {
	const gate featuregate.Feature = "EvictionRequestAPI"
	if _, known := utilfeature.DefaultMutableFeatureGate.GetAll()[gate]; !known {
		return nil
	}
	return []string{"--feature-gates=" + string(gate) + "=true", "--runtime-config=lifecycle.k8s.io/v1alpha1=true"}
}
