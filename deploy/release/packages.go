package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// nfpmConfig describes the packages. It is expanded with the variables of writePackages.
const nfpmConfig = "deploy/package/nfpm.yaml"

// writePackages builds the deb and the rpm of one platform with nfpm, which needs neither dpkg nor rpmbuild.
func (b *builder) writePackages(ctx context.Context, p platform) error {
	if err := b.compressManPages(); err != nil {
		return err
	}
	version, err := formatPackageVersion(b.source.version, b.source.date)
	if err != nil {
		return err
	}
	for _, format := range []string{"deb", "rpm"} {
		cmd := exec.CommandContext(ctx, "go", "tool", "-modfile=internal/tools/go.mod", "nfpm", "package",
			"--config", nfpmConfig, "--packager", format, "--target", b.out)
		cmd.Env = append(os.Environ(), "VERSION="+version, "ARCH="+p.arch, "STAGE="+b.stage, "BINARY="+b.binaryPath(p),
			fmt.Sprintf("SOURCE_DATE_EPOCH=%d", b.source.date.Unix()))
		if err := runCommand(cmd); err != nil {
			return err
		}
	}
	return nil
}

// compressManPages writes the manual pages to the folder man.gz, as packages carry them. It does nothing the second time.
func (b *builder) compressManPages() error {
	dir := filepath.Join(b.stage, "man.gz")
	if _, err := os.Stat(dir); err == nil {
		return nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	pages, err := listFolder(filepath.Join(b.stage, "man"), "")
	if err != nil {
		return err
	}
	for _, page := range pages {
		if err := compressFile(filepath.Join(dir, filepath.Base(page.source)+".gz"), page.source); err != nil {
			return err
		}
	}
	return nil
}
