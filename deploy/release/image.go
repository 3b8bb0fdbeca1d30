package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// The image is written by hand: one layer is a tar file, and the rest are four small JSON documents of the OCI image
// specification 1.1. This needs no container engine and no privilege, works on every system, and gives the same bytes each time.

const (
	typeIndex    = "application/vnd.oci.image.index.v1+json"
	typeManifest = "application/vnd.oci.image.manifest.v1+json"
	typeConfig   = "application/vnd.oci.image.config.v1+json"
	typeLayer    = "application/vnd.oci.image.layer.v1.tar+gzip"
)

// descriptor refers to a blob.
type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int               `json:"size"`
	Platform    *imagePlatform    `json:"platform,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

type imagePlatform struct {
	Architecture string `json:"architecture"`
	OS           string `json:"os"`
}

// manifest is an image manifest (with Config and Layers) or an index (with Manifests).
type manifest struct {
	SchemaVersion int               `json:"schemaVersion"`
	MediaType     string            `json:"mediaType"`
	Config        *descriptor       `json:"config,omitempty"`
	Layers        []descriptor      `json:"layers,omitempty"`
	Manifests     []descriptor      `json:"manifests,omitempty"`
	Annotations   map[string]string `json:"annotations,omitempty"`
}

// imageConfig is the configuration of an image for one platform.
type imageConfig struct {
	Created      string         `json:"created"`
	Architecture string         `json:"architecture"`
	OS           string         `json:"os"`
	Config       runConfig      `json:"config"`
	RootFS       rootFS         `json:"rootfs"`
	History      []historyEntry `json:"history"`
}

// runConfig is how a container of the image runs.
type runConfig struct {
	User         string              `json:"User"`
	ExposedPorts map[string]struct{} `json:"ExposedPorts"`
	Env          []string            `json:"Env"`
	Entrypoint   []string            `json:"Entrypoint"`
	Cmd          []string            `json:"Cmd"`
	Volumes      map[string]struct{} `json:"Volumes"`
	Labels       map[string]string   `json:"Labels"`
	StopSignal   string              `json:"StopSignal"`
	// Healthcheck is an extension of Docker that BuildKit writes into OCI images also. Other engines ignore it.
	Healthcheck healthcheck `json:"Healthcheck"`
}

// healthcheck is a command that exits with 0 when the node is ready. Times are in nanoseconds.
type healthcheck struct {
	Test        []string      `json:"Test"`
	Interval    time.Duration `json:"Interval"`
	Timeout     time.Duration `json:"Timeout"`
	StartPeriod time.Duration `json:"StartPeriod"`
	Retries     int           `json:"Retries"`
}

type rootFS struct {
	Type    string   `json:"type"`
	DiffIDs []string `json:"diff_ids"`
}

type historyEntry struct {
	Created   string `json:"created"`
	CreatedBy string `json:"created_by"`
}

// imageLayout collects the files of an OCI image layout.
type imageLayout struct{ files []packedFile }

// addBlob adds a blob and returns its descriptor.
func (l *imageLayout) addBlob(mediaType string, data []byte) descriptor {
	sum := fmt.Sprintf("%x", sha256.Sum256(data))
	l.files = append(l.files, packedFile{path: "blobs/sha256/" + sum, data: data, mode: 0o644})
	return descriptor{MediaType: mediaType, Digest: "sha256:" + sum, Size: len(data)}
}

// addJSON adds a JSON document as a blob.
func (l *imageLayout) addJSON(mediaType string, v any) (descriptor, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return descriptor{}, err
	}
	return l.addBlob(mediaType, data), nil
}

// writeImageArchive writes the image for all platforms as an OCI archive: a tar file of an OCI layout, which
// `podman load`, `docker load` (with the containerd store), `skopeo copy` and `ctr import` read.
func (b *builder) writeImageArchive(platforms []platform) error {
	var (
		l     imageLayout
		index = manifest{SchemaVersion: 2, MediaType: typeIndex}
	)
	for _, p := range platforms {
		d, err := b.addImage(&l, p)
		if err != nil {
			return err
		}
		index.Manifests = append(index.Manifests, d)
	}
	version := strings.TrimPrefix(b.source.version, "v")
	all, err := l.addJSON(typeIndex, index)
	if err != nil {
		return err
	}
	all.Annotations = map[string]string{
		"org.opencontainers.image.ref.name": version,
		"io.containerd.image.name":          "localhost/spillway:" + version,
	}
	top, err := json.Marshal(manifest{SchemaVersion: 2, MediaType: typeIndex, Manifests: []descriptor{all}})
	if err != nil {
		return err
	}
	files := append(l.files,
		packedFile{path: "oci-layout", data: []byte(`{"imageLayoutVersion":"1.0.0"}`), mode: 0o644},
		packedFile{path: "index.json", data: top, mode: 0o644})
	var out bytes.Buffer
	if err := writeTar(&out, files, b.source.date); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(b.out, "spillway-"+version+"-image.tar"), out.Bytes(), 0o644)
}

// addImage adds the layer, the configuration and the manifest of one platform.
func (b *builder) addImage(l *imageLayout, p platform) (descriptor, error) {
	var layer bytes.Buffer
	if err := writeTar(&layer, listImageFiles(b.binaryPath(p)), b.source.date); err != nil {
		return descriptor{}, err
	}
	packed, err := compress(layer.Bytes())
	if err != nil {
		return descriptor{}, err
	}
	created := b.source.date.Format(time.RFC3339)
	config, err := l.addJSON(typeConfig, imageConfig{
		Created: created, Architecture: p.arch, OS: p.os,
		Config:  describeContainer(b.source),
		RootFS:  rootFS{Type: "layers", DiffIDs: []string{fmt.Sprintf("sha256:%x", sha256.Sum256(layer.Bytes()))}},
		History: []historyEntry{{Created: created, CreatedBy: "deploy/release"}},
	})
	if err != nil {
		return descriptor{}, err
	}
	d, err := l.addJSON(typeManifest, manifest{
		SchemaVersion: 2, MediaType: typeManifest, Config: &config, Layers: []descriptor{l.addBlob(typeLayer, packed)},
	})
	d.Platform = &imagePlatform{Architecture: p.arch, OS: p.os}
	return d, err
}

// listImageFiles lists the root filesystem of the image: the binary, CA roots, and writable folders for a socket, state and
// temporary files. The folders are writable for all users, because some platforms choose a user of their own.
func listImageFiles(binary string) []packedFile {
	return []packedFile{
		{path: "etc/", mode: 0o755},
		{path: "etc/spillway/", mode: 0o755},
		{path: "etc/ssl/", mode: 0o755},
		{path: "etc/ssl/certs/", mode: 0o755},
		{path: "etc/ssl/certs/ca-certificates.crt", data: encodeRoots(), mode: 0o644},
		{path: "run/", mode: 0o1777},
		{path: "spillway", source: binary, mode: 0o755},
		{path: "tmp/", mode: 0o1777},
		{path: "var/", mode: 0o755},
		{path: "var/lib/", mode: 0o755},
		{path: "var/lib/spillway/", mode: 0o1777},
	}
}

// encodeRoots returns Mozilla's CA roots as PEM, from a pinned module: those of the building machine would make the image
// depend on it. Roots that are trusted only for certificates up to a date are left out, because PEM cannot state the date.
func encodeRoots() []byte {
	var out bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint == nil {
			_ = pem.Encode(&out, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}) // a Buffer returns no error
		}
	}
	return out.Bytes()
}

// describeContainer returns how a container of the image runs.
func describeContainer(s source) runConfig {
	ports := map[string]struct{}{}
	// DNS; clients over HTTP, HTTPS and HTTP/3; uplinks; metrics. The config decides which of them a node opens.
	for _, p := range []string{"53/udp", "53/tcp", "8080/tcp", "443/tcp", "443/udp", "7401/udp", "9464/tcp"} {
		ports[p] = struct{}{}
	}
	return runConfig{
		User:         "65532:65532",
		ExposedPorts: ports,
		Env:          []string{"PATH=/", "XDG_RUNTIME_DIR=/run"},
		Entrypoint:   []string{"/spillway"},
		Cmd:          []string{"help"},
		Volumes:      map[string]struct{}{"/var/lib/spillway": {}},
		StopSignal:   "SIGTERM",
		Labels: map[string]string{
			"org.opencontainers.image.title":       "Spillway",
			"org.opencontainers.image.description": "Hierarchical multi-region load balancer for GPU inference",
			"org.opencontainers.image.version":     s.version,
			"org.opencontainers.image.revision":    s.commit,
		},
		Healthcheck: healthcheck{
			Test: []string{"CMD", "/spillway", "status"}, Interval: 10 * time.Second, Timeout: 5 * time.Second,
			StartPeriod: 30 * time.Second, Retries: 3,
		},
	}
}
