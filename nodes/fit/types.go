package fit

import (
	_ "embed"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/muster-dev/muster/nodes"
)

//go:embed types.csv
var shipped string

// InstanceType is a type of instance as its vendor describes it.
type InstanceType struct {
	Name         string
	VCPU         int
	MemoryMiB    int64
	OnDemand     float64 // USD an hour
	Spot         float64 // USD an hour
	Interruption string  // how often Spot instances of the type are taken away within a month, for example "<5%"; "" if not known
	PodsVPCCNI   int     // pods by the addresses of its network interfaces, which K3s does not need; 0 if not known
	GPUs         int     // whole nvidia.com/gpu
	Arch         string  // amd64 or arm64, as in the label kubernetes.io/arch
}

// Price returns what an hour costs in a market, in USD.
func (t InstanceType) Price(m nodes.Market) float64 {
	if m == nodes.Spot {
		return t.Spot
	}
	return t.OnDemand
}

// Catalog is a set of instance types by name.
type Catalog map[string]InstanceType

// Shipped returns the table that comes with Muster: prices of us-east-1 and sizes of most EC2 types. Its sources and their licences
// are at the head of types.csv.
func Shipped() Catalog {
	c, err := readCatalog("types.csv", strings.NewReader(shipped))
	if err != nil {
		panic(err) // it is a part of the program, and tested
	}
	return c
}

// OpenCatalog returns the shipped table, or with a path the table in that file, which replaces it.
func OpenCatalog(path string) (Catalog, error) {
	if path == "" {
		return Shipped(), nil
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("opening the table of instance types: %w: set INSTANCE_TABLE to a readable file, or leave it empty for the shipped one", err)
	}
	defer func() { _ = f.Close() }()
	return readCatalog(path, f)
}

// readCatalog reads a table of instance types: comma-separated values with a head line that names the columns. type, vcpu,
// memory_mib and usd_per_hour are needed; spot_savings_pct (0..100), interruption, vpc_cni_pods, gpus and arch may be absent or
// empty. Lines that begin with # are skipped. The error names every wrong line and field; name is what it calls the table.
func readCatalog(name string, r io.Reader) (Catalog, error) {
	in := csv.NewReader(r)
	in.Comment = '#'
	head, err := in.Read()
	if err != nil {
		return nil, fmt.Errorf("%s: reading the line that names the columns: %w", name, err)
	}
	var errs []error
	for _, needed := range []string{"type", "vcpu", "memory_mib", "usd_per_hour"} {
		if !slices.Contains(head, needed) {
			errs = append(errs, fmt.Errorf("%s: column %s is missing: the first line names the columns", name, needed))
		}
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	out := Catalog{}
	for {
		row, err := in.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, errors.Join(append(errs, fmt.Errorf("%s: %w", name, err))...)
		}
		line, _ := in.FieldPos(0)
		t, problems := parseType(head, row)
		for _, p := range problems {
			errs = append(errs, fmt.Errorf("%s, line %d: %w", name, line, p))
		}
		if _, twice := out[t.Name]; twice {
			errs = append(errs, fmt.Errorf("%s, line %d: type %q is there twice: remove one", name, line, t.Name))
		}
		out[t.Name] = t
	}
	if len(out) == 0 && len(errs) == 0 {
		errs = append(errs, fmt.Errorf("%s: it names no instance type", name))
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return out, nil
}

func parseType(head, row []string) (InstanceType, []error) {
	var errs []error
	field := func(name string) string {
		if i := slices.Index(head, name); i >= 0 {
			return strings.TrimSpace(row[i])
		}
		return ""
	}
	number := func(name string, least, most float64, needed bool) float64 {
		text := field(name)
		if text == "" && !needed {
			return 0
		}
		v, err := strconv.ParseFloat(text, 64)
		if err != nil || math.IsNaN(v) || v < least || v > most {
			errs = append(errs, fmt.Errorf("%s is %q: write a number from %v to %v", name, text, least, most))
			return 0
		}
		return v
	}
	t := InstanceType{
		Name:         field("type"),
		VCPU:         int(number("vcpu", 1, 1e5, true)),
		MemoryMiB:    int64(number("memory_mib", 1, 1e9, true)),
		OnDemand:     number("usd_per_hour", 0.0001, 1e5, true),
		Interruption: field("interruption"),
		PodsVPCCNI:   int(number("vpc_cni_pods", 0, 1e5, false)),
		GPUs:         int(number("gpus", 0, 1e3, false)),
		Arch:         field("arch"),
	}
	if t.Name == "" {
		errs = append(errs, errors.New("type is empty: write its name, for example m7i.large"))
	}
	t.Spot = t.OnDemand * (1 - number("spot_savings_pct", 0, 100, false)/100)
	switch t.Arch {
	case "":
		t.Arch = archOf(t.Name)
	case "amd64", "arm64":
	default:
		errs = append(errs, fmt.Errorf("arch is %q: write amd64 or arm64", t.Arch))
	}
	return t, errs
}

// archOf tells a type's architecture by its name: a letter g behind the generation's number stands for Graviton, and a1 was the first.
func archOf(name string) string {
	family, _, _ := strings.Cut(name, ".")
	family, _, _ = strings.Cut(family, "-")
	i := strings.IndexAny(family, "0123456789")
	if family == "a1" || i >= 0 && strings.Contains(strings.TrimLeft(family[i:], "0123456789"), "g") {
		return "arm64"
	}
	return "amd64"
}

// Only returns the types of those names; the error lists the names that are not in the catalog.
func (c Catalog) Only(names []string) ([]InstanceType, error) {
	var out []InstanceType
	var unknown []string
	for _, n := range names {
		if t, ok := c[n]; ok {
			out = append(out, t)
		} else {
			unknown = append(unknown, n)
		}
	}
	if len(unknown) > 0 {
		return out, fmt.Errorf("instance types %s: not in the table of instance types: correct INSTANCE_TYPES, or add them to a table of your own and set INSTANCE_TABLE",
			strings.Join(unknown, ", "))
	}
	return out, nil
}

// Names returns the names of all types, sorted.
func (c Catalog) Names() []string { return slices.Sorted(maps.Keys(c)) }
