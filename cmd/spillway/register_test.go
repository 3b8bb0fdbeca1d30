package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/chaos/fleet"
	"github.com/spillway-lb/spillway/chaos/gpu"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/internal/testkit"
	"github.com/spillway-lb/spillway/local"
)

// TestRegisterCommandRegistersAnEngine registers an engine with a zone without workers: by plain HTTP, and by TLS with the
// certificate of the local instance.
func TestRegisterCommandRegistersAnEngine(t *testing.T) {
	const token = "0123456789abcdef0123456789abcdef"
	for _, scheme := range []string{"http", "https"} {
		dir := t.TempDir()
		file := func(name, text string) string {
			t.Helper()
			path := filepath.Join(dir, name)
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			return path
		}
		tls, args := "", []string{}
		if scheme == "https" {
			if _, _, err := runSpillway(t, "certs", "dev", "--dir", dir, "region/fra/zone/a/local/l1"); err != nil {
				t.Fatal(err)
			}
			tls, args = "tls: {cert: fra-a-l1.pem, key: fra-a-l1.key, ca: ca.pem}\n", []string{"--ca", filepath.Join(dir, "ca.pem")}
		}
		file("tokens", "# the sidecars'\n"+spec.HashKey(token)+"\n")
		node, err := openRole(file("local.yaml", "role: local\nname: l1\nregion: fra\nzone: a\n"+tls+
			"http: {listen: \"127.0.0.1:0\", plain: true}\nscrape_interval: 100ms\n"+
			"registration: {listen: \"127.0.0.1:0\", token_file: tokens, allow: [127.0.0.0/8], lease: 6s}\n"), slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		zone := node.(*local.Agent)
		engine, err := gpu.New(gpu.Config{Listen: "127.0.0.1:0", GPU: "H100", Model: "Llama-3.1-8B", Speed: 10})
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range []interface{ Start(context.Context) error }{zone, engine} {
			if err := r.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		said, tokenFile := make(chan string, 1), file("token", token+"\n")
		go func() {
			out, errOut, err := runSpillwayContext(ctx, append([]string{"register"}, append(args, "--local", fmt.Sprintf("%s://%s", scheme, zone.RegistrationAddr()),
				"--name", "w1", "--url", engine.URL(), "--gpu", "H100", "--label", "rack=r7", "--token-file", tokenFile)...)...)
			said <- fmt.Sprint(out, errOut, err)
		}()
		testkit.Eventually(t, "the worker there and ready", func() bool {
			ws := zone.Status().Workers
			return len(ws) == 1 && ws[0].State == "ready" && ws[0].Name == "w1" && ws[0].Source == "registration"
		})
		testkit.HoldsFor(t, 8*time.Second, scheme+": the worker stays registered for longer than a lease", func() bool {
			return len(zone.Status().Workers) == 1
		})
		cancel()
		out := <-said
		for _, line := range []string{"the engine is up", "registered as w1 at " + engine.URL() + ", lease 6s", "unregistered", "<nil>"} {
			if !strings.Contains(out, line) {
				t.Errorf("%s: the output lacks %q:\n%s", scheme, line, out)
			}
		}
		testkit.Eventually(t, "the worker gone", func() bool { return len(zone.Status().Workers) == 0 })
		for _, r := range []interface{ Stop(context.Context) error }{zone, engine} {
			if err := r.Stop(context.WithoutCancel(ctx)); err != nil {
				t.Error(err)
			}
		}
	}
}

// TestSimulatedWorkerRegistersItself does the same by the config of a simulated worker.
func TestSimulatedWorkerRegistersItself(t *testing.T) {
	const token = "0123456789abcdef0123456789abcdef"
	dir := t.TempDir()
	run := func(name, text string) fleet.Runner {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		node, err := openRole(path, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		if err := node.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		return node
	}
	if err := os.WriteFile(filepath.Join(dir, "token"), []byte(token+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	zone := run("local.yaml", "role: local\nname: l1\nregion: fra\nzone: a\nhttp: {listen: \"127.0.0.1:0\", plain: true}\nscrape_interval: 100ms\n"+
		"registration: {listen: \"127.0.0.1:0\", tokens: [\""+spec.HashKey(token)+"\"], allow: [127.0.0.0/8], lease: 1m}\n").(*local.Agent)
	worker := run("worker.yaml", "role: worker\nname: w1\nlisten: 127.0.0.1:0\nregister: {locals: [\"http://"+zone.RegistrationAddr().String()+"\"], token_file: token}\n")
	testkit.Eventually(t, "the worker there and ready", func() bool {
		ws := zone.Status().Workers
		return len(ws) == 1 && ws[0].State == "ready" && ws[0].Name == "w1" && ws[0].GPU == "H100"
	})
	if err := worker.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	testkit.Eventually(t, "the worker gone", func() bool { return len(zone.Status().Workers) == 0 })
	if err := zone.Stop(context.WithoutCancel(t.Context())); err != nil {
		t.Error(err)
	}
}
