package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/nodes/backtest"
	"github.com/muster-dev/muster/nodes/fit"
)

// instanceType is a type that both may launch.
type instanceType struct {
	name        string
	price       float64 // USD an hour
	allocatable nodes.Resources
}

var zones = []string{"a", "b", "c"}

// readScene reads the trace and chooses the window and the types: those that `muster nodes backtest` takes by default.
func readScene(o options) (scene, error) {
	f, err := os.Open(o.trace)
	if err != nil {
		return scene{}, err
	}
	defer func() { _ = f.Close() }()
	s := scene{speed: o.speed}
	if s.trace, err = backtest.ReadTrace(o.trace, f); err != nil {
		return s, err
	}
	s.window = s.trace.Busiest(o.window)
	pods, _ := s.trace.Cut(s.window)
	catalog := fit.Shipped()
	packer := fit.New(fit.Config{Catalog: catalog})
	for _, name := range backtest.DefaultTypes(catalog, pods) {
		t := catalog[name]
		s.types = append(s.types, instanceType{name, t.OnDemand, packer.Allocatable(t)})
	}
	for _, p := range pods {
		// One that never ran when it was recorded says nothing of how long it would have run.
		if p.Withdrawn == 0 && slices.ContainsFunc(s.types, func(t instanceType) bool {
			return p.MilliCPU <= t.allocatable.MilliCPU && p.Memory <= t.allocatable.Memory
		}) {
			s.pods = append(s.pods, p)
		} else {
			s.out++
		}
	}
	if len(s.pods) == 0 {
		return s, errors.New("no pod of the window fits any instance type: choose a longer --window")
	}
	return s, nil
}

// names lists the types.
func (s scene) names() (out []string) {
	for _, t := range s.types {
		out = append(out, t.name)
	}
	return out
}

// of returns a type by its name.
func (s scene) of(name string) (instanceType, error) {
	for _, t := range s.types {
		if t.name == name {
			return t, nil
		}
	}
	return instanceType{}, fmt.Errorf("an instance of type %q was launched, which is not offered", name)
}

// bound takes the lower bound of the cost from the backtest of the window.
func (s *scene) bound(ctx context.Context) error {
	p := nodes.DefaultPolicy()
	p.InstanceTypes, p.MinWorkers, p.MaxWorkers, p.Sizing = s.names(), 0, maxWorkers, nodes.SizingFit
	r, err := backtest.Run(ctx, backtest.Config{Trace: s.trace, Window: s.window, Policy: p, Seed: 1})
	s.least = r.Nodes.BoundCost
	return err
}

// What Karpenter's KWOK provider takes off every type, and so what is added here: the nodes of both offer the same.
const (
	kwokMilliCPU = 100
	kwokMemory   = 10 << 20
)

// kwokTypes returns the types in the format of Karpenter's KWOK provider.
func (s scene) kwokTypes() ([]byte, error) {
	type requirement struct {
		Key      string   `json:"key"`
		Operator string   `json:"operator"`
		Values   []string `json:"values"`
	}
	type offering struct {
		Price        float64
		Available    bool
		Requirements []requirement
	}
	type kind struct {
		Name             string            `json:"name"`
		Offerings        []offering        `json:"offerings"`
		Architecture     string            `json:"architecture"`
		OperatingSystems []string          `json:"operatingSystems"`
		Resources        map[string]string `json:"resources"`
	}
	var out []kind
	for _, t := range s.types {
		k := kind{Name: t.name, Architecture: "amd64", OperatingSystems: []string{"linux"}, Resources: map[string]string{
			"cpu":    resource.NewMilliQuantity(t.allocatable.MilliCPU+kwokMilliCPU, resource.DecimalSI).String(),
			"memory": resource.NewQuantity(t.allocatable.Memory+kwokMemory, resource.BinarySI).String(),
			"pods":   fmt.Sprint(t.allocatable.Pods),
		}}
		for _, z := range zones {
			k.Offerings = append(k.Offerings, offering{t.price, true, []requirement{
				{"karpenter.sh/capacity-type", "In", []string{"on-demand"}}, {"topology.kubernetes.io/zone", "In", []string{z}}}})
		}
		out = append(out, k)
	}
	return json.Marshal(out)
}
