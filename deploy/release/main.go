// Command release builds what users install, into one folder: an archive for each platform, deb and rpm packages, a container
// image, a bill of materials (SBOM) for each binary and SHA256SUMS.
//
//	go run ./deploy/release -out bin/release -targets linux/amd64,darwin/arm64
//
// It runs in the root of the source tree. The same commit, built with the same Go release, gives the same bytes in each folder
// and on each machine: every time is the commit's (or $SOURCE_DATE_EPOCH), paths are trimmed, owners are 0, files are sorted.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := runRelease(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func runRelease(ctx context.Context, args []string) error {
	f := flag.NewFlagSet("release", flag.ExitOnError)
	out := f.String("out", "bin/release", "folder for the results; what is in it is removed first")
	targets := f.String("targets", "linux/amd64,linux/arm64,darwin/amd64,darwin/arm64", "platforms to build for")
	version := f.String("version", "", "version to stamp instead of that of git describe")
	kinds := f.String("kinds", "archive,package,image", "what to build: the image and the packages need a linux target")
	if err := f.Parse(args); err != nil {
		return err
	}
	wanted, err := parseKinds(*kinds)
	if err != nil {
		return err
	}
	platforms, err := parsePlatforms(*targets)
	if err != nil {
		return err
	}
	s, err := describeSource(ctx, *version)
	if err != nil {
		return err
	}
	b := builder{source: s, out: *out}
	return b.buildRelease(ctx, platforms, wanted)
}

// kindNames are the values of -kinds.
var kindNames = []string{"archive", "package", "image"}

func parseKinds(list string) (map[string]bool, error) {
	wanted := map[string]bool{}
	for _, k := range strings.Split(list, ",") {
		wanted[k] = true
	}
	for k := range wanted {
		if k != kindNames[0] && k != kindNames[1] && k != kindNames[2] {
			return nil, fmt.Errorf("-kinds: %q is none of %s", k, strings.Join(kindNames, ", "))
		}
	}
	return wanted, nil
}

// platform is an operating system and a processor architecture, by Go's names.
type platform struct{ os, arch string }

func parsePlatforms(list string) (out []platform, err error) {
	for _, t := range strings.Split(list, ",") {
		goos, goarch, ok := strings.Cut(t, "/")
		if !ok || goos != "linux" && goos != "darwin" || goarch != "amd64" && goarch != "arm64" {
			return nil, fmt.Errorf("-targets: %q is none of linux/amd64, linux/arm64, darwin/amd64, darwin/arm64", t)
		}
		out = append(out, platform{goos, goarch})
	}
	return out, nil
}
