package main

import (
	"bytes"
	"crypto/sha256"
	"debug/buildinfo"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

// writeSBOM writes what a binary is made of, in CycloneDX's JSON: the modules that the linker recorded in it and the standard
// library. Modules that only tests or tools use are not in it.
func (b *builder) writeSBOM(p platform) error {
	path := b.binaryPath(p)
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		return fmt.Errorf("reading the modules of %s: %w", path, err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	bom := composeBOM(info, b.source, p, sha256.Sum256(data))
	var text bytes.Buffer
	if err := cdx.NewBOMEncoder(&text, cdx.BOMFileFormatJSON).SetPretty(true).Encode(bom); err != nil {
		return fmt.Errorf("encoding the SBOM: %w", err)
	}
	name := fmt.Sprintf("spillway-%s-%s-%s.cdx.json", strings.TrimPrefix(b.source.version, "v"), p.os, p.arch)
	return os.WriteFile(filepath.Join(b.out, name), text.Bytes(), 0o644)
}

// composeBOM describes a binary with the given build info and SHA-256.
func composeBOM(info *debug.BuildInfo, s source, p platform, sum [32]byte) *cdx.BOM {
	root := cdx.Component{
		BOMRef: "spillway", Type: cdx.ComponentTypeApplication, Name: "spillway", Version: s.version,
		PackageURL: fmt.Sprintf("pkg:golang/%s@%s?goos=%s&goarch=%s", info.Main.Path, s.version, p.os, p.arch),
		Hashes:     &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: fmt.Sprintf("%x", sum)}},
	}
	goVersion := strings.TrimPrefix(info.GoVersion, "go")
	parts := []cdx.Component{{
		BOMRef: "std", Type: cdx.ComponentTypeLibrary, Name: "std", Version: goVersion,
		Description: "Go standard library", PackageURL: "pkg:golang/std@" + goVersion,
	}}
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		url := "pkg:golang/" + m.Path + "@" + m.Version
		c := cdx.Component{BOMRef: url, Type: cdx.ComponentTypeLibrary, Name: m.Path, Version: m.Version, PackageURL: url}
		if m.Sum != "" {
			c.Properties = &[]cdx.Property{{Name: "go.sum", Value: m.Sum}} // a hash over the module's files, no file's own
		}
		parts = append(parts, c)
	}
	var refs []string
	for i := range parts {
		refs = append(refs, parts[i].BOMRef)
	}
	bom := cdx.NewBOM()
	bom.Metadata = &cdx.Metadata{Timestamp: s.date.Format(time.RFC3339), Component: &root}
	bom.Components = &parts
	bom.Dependencies = &[]cdx.Dependency{{Ref: root.BOMRef, Dependencies: &refs}}
	return bom
}
