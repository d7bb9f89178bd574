package sim

import "strings"

// objects is what only the Kubernetes API has.
type objects struct {
	budgets  []Budget
	replicas map[string]int // that deployments are to have, by namespace/name

	buffers       []KubeBuffer
	servesBuffers bool
}

// Budget is a PodDisruptionBudget over the pods of a namespace whose names begin with Prefix.
type Budget struct {
	Namespace, Name string
	Prefix          string
	MinAvailable    int
}

// Covers reports whether the budget is about a pod.
func (b Budget) Covers(s PodSpec) bool {
	ns, name := s.Split()
	return ns == b.Namespace && strings.HasPrefix(name, b.Prefix)
}

// BudgetStatus is a budget with what it counts.
type BudgetStatus struct {
	Budget
	Expected, Healthy int
}

// Allowed returns how many pods may be disrupted now.
func (b BudgetStatus) Allowed() int { return max(0, b.Healthy-b.MinAvailable) }
