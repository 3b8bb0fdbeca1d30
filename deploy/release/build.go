package main

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// builder builds the files of one release.
type builder struct {
	source source
	out    string
	stage  string // folder for what is packed: binaries, manual pages, completion scripts
}

// buildRelease builds everything for the platforms and writes SHA256SUMS last.
func (b *builder) buildRelease(ctx context.Context, platforms []platform, wanted map[string]bool) error {
	if err := os.RemoveAll(b.out); err != nil {
		return err
	}
	if err := os.MkdirAll(b.out, 0o755); err != nil {
		return err
	}
	stage, err := os.MkdirTemp("", "spillway-release-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(stage)
	b.stage = stage
	host := platform{runtime.GOOS, runtime.GOARCH}
	for _, p := range append(slices.Clone(platforms), host) {
		if err := b.buildBinary(ctx, p); err != nil {
			return err
		}
	}
	if err := b.generateTexts(ctx, b.binaryPath(host)); err != nil {
		return err
	}
	var linux []platform
	for _, p := range platforms {
		if p.os == "linux" {
			linux = append(linux, p)
		}
		if err := b.writeSBOM(p); err != nil {
			return err
		}
		if wanted["archive"] {
			if err := b.writeArchive(p); err != nil {
				return err
			}
		}
		if wanted["package"] && p.os == "linux" {
			if err := b.writePackages(ctx, p); err != nil {
				return err
			}
		}
	}
	if wanted["image"] && len(linux) > 0 {
		if err := b.writeImageArchive(linux); err != nil {
			return err
		}
	}
	return writeChecksums(b.out)
}

func (b *builder) binaryPath(p platform) string {
	return filepath.Join(b.stage, p.os+"-"+p.arch, "spillway")
}

// buildBinary builds the static binary for one platform, unless it was built before.
func (b *builder) buildBinary(ctx context.Context, p platform) error {
	path := b.binaryPath(p)
	if _, err := os.Stat(path); err == nil {
		return nil
	}
	fmt.Printf("building %s for %s/%s\n", b.source.version, p.os, p.arch)
	// -buildvcs=false: the version and the commit are stamped here, also where the go command finds no repository.
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-o", path,
		"-ldflags", "-s -w -X main.version="+b.source.version+" -X main.commit="+b.source.commit, "./cmd/spillway")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=", "GOOS="+p.os, "GOARCH="+p.arch, "GOAMD64=v1", "GOARM64=v8.0")
	return runCommand(cmd)
}

// generateTexts lets the binary write its manual pages and completion scripts. It gets no environment, because the defaults of
// some flags come from there.
func (b *builder) generateTexts(ctx context.Context, binary string) error {
	env := []string{fmt.Sprintf("SOURCE_DATE_EPOCH=%d", b.source.date.Unix())}
	man := exec.CommandContext(ctx, binary, "man", filepath.Join(b.stage, "man"))
	man.Env = env
	if err := runCommand(man); err != nil {
		return err
	}
	dir := filepath.Join(b.stage, "completions")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for shell, name := range map[string]string{"bash": "spillway", "zsh": "_spillway", "fish": "spillway.fish"} {
		cmd := exec.CommandContext(ctx, binary, "completion", shell)
		cmd.Env = env
		out, err := cmd.Output()
		if err != nil {
			return fmt.Errorf("spillway completion %s: %w", shell, err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), out, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// runCommand runs a command and adds what it printed to its error.
func runCommand(cmd *exec.Cmd) error {
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, out)
	}
	return nil
}

// writeArchive packs the binary, its texts and the files of deploy that an administrator needs.
func (b *builder) writeArchive(p platform) error {
	name := fmt.Sprintf("spillway-%s-%s-%s", strings.TrimPrefix(b.source.version, "v"), p.os, p.arch)
	files := []packedFile{{path: name + "/spillway", source: b.binaryPath(p), mode: 0o755}}
	folders := map[string]string{
		filepath.Join(b.stage, "man"):         "man",
		filepath.Join(b.stage, "completions"): "completions",
		"deploy/docs":                         "docs",
		"deploy/runbooks":                     "runbooks",
	}
	if p.os == "linux" {
		folders["deploy/systemd"], folders["deploy/sysctl"] = "systemd", "sysctl"
	}
	for from, to := range folders {
		found, err := listFolder(from, name+"/"+to)
		if err != nil {
			return err
		}
		files = append(files, found...)
	}
	return writeTarGz(filepath.Join(b.out, name+".tar.gz"), files, b.source.date)
}

// listFolder lists the regular files of a folder for packing them below another path.
func listFolder(from, to string) (out []packedFile, err error) {
	err = filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		out = append(out, packedFile{path: to + "/" + filepath.ToSlash(rel), source: path, mode: 0o644})
		return nil
	})
	return out, err
}
