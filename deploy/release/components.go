package main

import (
	"bytes"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

// module is a Go module, with the hash that go.sum has of it.
type module struct{ path, version, sum string }

// componentsOf returns the list of the modules that programs are made of, as the programs themselves state them, and of what is
// beside them, in CycloneDX's JSON. It names the archive that has them by its checksum.
func componentsOf(archive string, content []byte, s source, infos []*buildinfo.BuildInfo, beside ...module) ([]byte, error) {
	components := map[string]cdx.Component{}
	for _, m := range beside {
		add(components, "pkg:golang/"+m.path+"@"+m.version, m.path, m.version, m.sum)
	}
	for _, info := range infos {
		add(components, "pkg:golang/std@"+strings.TrimPrefix(info.GoVersion, "go"), "std", strings.TrimPrefix(info.GoVersion, "go"), "")
		for _, m := range info.Deps {
			name, version, sum := m.Path, m.Version, m.Sum
			if m.Replace != nil && m.Replace.Version != "" {
				name, version, sum = m.Replace.Path, m.Replace.Version, m.Replace.Sum
			}
			add(components, "pkg:golang/"+name+"@"+version, name, version, sum)
		}
	}
	var list []cdx.Component
	for _, reference := range slices.Sorted(maps.Keys(components)) {
		list = append(list, components[reference])
	}
	sum := sha256.Sum256(content)
	bom := cdx.NewBOM()
	bom.SerialNumber = "urn:uuid:" + identifier(sum)
	bom.Metadata = &cdx.Metadata{
		Timestamp: s.committed.Format(time.RFC3339),
		Component: &cdx.Component{
			BOMRef: archive, Type: cdx.ComponentTypeApplication, Name: archive, Version: s.tag,
			PackageURL: "pkg:golang/" + infos[0].Main.Path + "@" + s.tag,
			Hashes:     &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: hex.EncodeToString(sum[:])}},
		},
	}
	bom.Components = &list
	var out bytes.Buffer
	encoder := cdx.NewBOMEncoder(&out, cdx.BOMFileFormatJSON)
	encoder.SetPretty(true)
	if err := encoder.EncodeVersion(bom, cdx.SpecVersion1_6); err != nil {
		return nil, fmt.Errorf("listing the components of %s: %w", archive, err)
	}
	return out.Bytes(), nil
}

// add adds a module, with the hash that go.sum has of it.
func add(to map[string]cdx.Component, reference, name, version, sum string) {
	c := cdx.Component{BOMRef: reference, Type: cdx.ComponentTypeLibrary, Name: name, Version: version, PackageURL: reference}
	if hash, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(sum, "h1:")); err == nil && len(hash) == sha256.Size {
		c.Hashes = &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: hex.EncodeToString(hash)}}
	}
	to[reference] = c
}

// identifier returns a UUID, of version 8, that follows from a checksum.
func identifier(sum [sha256.Size]byte) string {
	id := sum[:16]
	id[6], id[8] = id[6]&0x0f|0x80, id[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", id[:4], id[4:6], id[6:8], id[8:10], id[10:])
}
