package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/spillway-lb/spillway/internal/admin"
	"github.com/spillway-lb/spillway/internal/config"
	"github.com/spillway-lb/spillway/internal/garbage"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/local/credential"
)

// up holds the flags of one run.
type up struct {
	workers, models []string
	listen          string
	key             string // the tenant that gets a key
	workerKey       string // the file with the key that the workers require
	dir             string
	printConfig     bool
	level           string
}

func upCommand() *cobra.Command {
	var u up
	cmd := &cobra.Command{
		Use:   "up --worker URL [--worker URL]...",
		Short: "Serve inference engines that are running, from one process",
		Long: `Serve inference engines that are running (vLLM, SGLang, llama.cpp, Ollama or any OpenAI-compatible server) at one address:
a gateway and a zone in one process, without a global tier, DNS, certificates or privileges. Workers that do not answer yet
are waited for. With --key only callers with the key are served; without it everybody who reaches the address is.
--api-key-file is the other side: the key that Spillway sends to engines that require one.`,
		Example: "  spillway up --worker http://127.0.0.1:8000\n  spillway up --worker http://gpu1:8000 --worker http://gpu2:8000 --listen 0.0.0.0:8080 --key acme --dir ./state",
		GroupID: "start",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			log, err := newLog(cmd, u.level)
			if err != nil {
				return err
			}
			return u.run(cmd.Context(), cmd.OutOrStdout(), log)
		},
	}
	f := cmd.Flags()
	f.StringArrayVar(&u.workers, "worker", nil, "an engine's address, such as http://127.0.0.1:8000; repeat it for more")
	f.StringVar(&u.listen, "listen", "127.0.0.1:8080", "where clients are served, host:port")
	f.StringArrayVar(&u.models, "model", nil, "serve this model only; repeat it for more (default: every model that the engines list)")
	f.StringVar(&u.key, "key", "", "require an API key: make one for the tenant of this name and print it once")
	f.StringVar(&u.workerKey, "api-key-file", "", "send the key in this file to every worker; the file is read again when it changes")
	f.StringVar(&u.dir, "dir", "", "keep the spec, drains and used budgets here (default: a folder that is removed at the end)")
	f.BoolVar(&u.printConfig, "config", false, "print the config that would run, for `spillway local -c`, and exit")
	f.StringVar(&u.level, "log-level", "warn", "debug, info, warn or error")
	return cmd
}

func (u *up) run(ctx context.Context, out io.Writer, log *slog.Logger) error {
	if err := u.checkWorkers(); err != nil {
		return err
	}
	if err := u.checkWorkerKey(); err != nil {
		return err
	}
	dir, remove, err := u.folder()
	if err != nil {
		return err
	}
	defer remove()
	c, err := u.config(dir)
	if err != nil {
		return err
	}
	if u.printConfig {
		_, err := out.Write(config.Encode(c))
		return err
	}
	key, note, err := u.writeSpec(c.Spec)
	if err != nil {
		return err
	}
	growDescriptors(descriptors)
	go keepCalm(ctx)
	go garbage.Keep(ctx)
	node, err := openZoneWithGateway(c, log)
	if err != nil {
		return err
	}
	if err := node.Start(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	base := "http://" + reachable(node.gateway.HTTPAddr().String())
	fmt.Fprintf(out, "Spillway %s serves %s at %s\n", version, plural(len(u.workers), "worker"), base)
	u.describe(out, c.Spec, key, note)
	node.await(ctx, func(w *admin.WorkerStatus) { printWorker(out, w) }, func(model string) {
		printTry(out, base, key, model)
	})
	<-ctx.Done()
	fmt.Fprintln(out, "\nstopping...")
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.DrainTimeout)
	defer cancel()
	if err := node.Stop(ctx); err != nil {
		return err
	}
	fmt.Fprintln(out, "stopped.")
	return nil
}

// checkWorkers finds the usual mistakes in --worker before anything runs.
func (u *up) checkWorkers() error {
	if len(u.workers) == 0 {
		return errors.New("no worker is named\nusage: spillway up --worker http://127.0.0.1:8000 (the address of a running engine; repeat --worker for more)")
	}
	for i, w := range u.workers {
		at, err := url.Parse(w)
		switch {
		case err != nil || at.Scheme != "http" && at.Scheme != "https" || at.Hostname() == "":
			return fmt.Errorf("--worker %q is not the address of an HTTP server: write scheme, host and port, such as http://127.0.0.1:8000", w)
		case at.User != nil || at.RawQuery != "" || at.Fragment != "":
			return fmt.Errorf("--worker: write scheme, host and port alone, without user and query: %s://%s", at.Scheme, at.Host)
		case strings.Trim(at.Path, "/") != "":
			return fmt.Errorf("--worker %q has the path %s: leave it out, Spillway adds it: %s://%s", w, at.Path, at.Scheme, at.Host)
		}
		u.workers[i] = at.Scheme + "://" + strings.ToLower(at.Host)
		if slices.Contains(u.workers[:i], u.workers[i]) {
			return fmt.Errorf("--worker %s is given twice: name each engine once", u.workers[i])
		}
	}
	return nil
}

// checkWorkerKey makes the path of --api-key-file absolute and reads the file once.
func (u *up) checkWorkerKey() error {
	if u.workerKey == "" {
		return nil
	}
	file, err := filepath.Abs(u.workerKey)
	if err != nil {
		return fmt.Errorf("--api-key-file %s: %w", u.workerKey, err)
	}
	u.workerKey = file
	if err := credential.New(config.WorkerAccess{APIKeyFile: file}).Value().Err; err != nil {
		reason := strings.TrimPrefix(strings.TrimPrefix(err.Error(), "api_key_file: "), "open "+file+": ")
		return fmt.Errorf("--api-key-file %s: %s; write a file that holds the key of the workers and nothing else", file, reason)
	}
	return nil
}

// folder is where state is kept, and what removes it at the end.
func (u *up) folder() (string, func(), error) {
	if u.dir == "" {
		dir, err := os.MkdirTemp("", "spillway-up-")
		if err != nil {
			return "", nil, fmt.Errorf("making a folder for the state: %w", err)
		}
		return dir, func() { os.RemoveAll(dir) }, nil
	}
	dir, err := filepath.Abs(u.dir)
	if err == nil && !u.printConfig {
		err = os.MkdirAll(dir, 0o700)
	}
	if err != nil {
		return "", nil, fmt.Errorf("making the folder of --dir: %w", err)
	}
	return dir, func() {}, nil
}

// config is the config file that would do the same.
func (u *up) config(dir string) (*config.Local, error) {
	_, port, err := net.SplitHostPort(u.listen)
	if err != nil {
		return nil, fmt.Errorf("--listen %q is not an address: write host:port, such as 127.0.0.1:8080", u.listen)
	}
	c := &config.Local{
		Role: config.RoleLocal, Name: "up-" + port, Region: "here", Zone: "a", Dir: dir, Spec: filepath.Join(dir, "spec.yaml"),
		HTTP: config.LocalHTTP{Listen: u.listen, Plain: true},
	}
	c.Admin.Socket = filepath.Join(admin.RuntimeDir(), "local-"+c.Name+".sock")
	for i, w := range u.workers {
		c.Workers = append(c.Workers, config.WorkerEntry{Name: fmt.Sprintf("w%d", i+1), URL: w, Models: u.models, APIKeyFile: u.workerKey})
	}
	cfg, err := config.Decode(filepath.Join(dir, "up.yaml"), config.Encode(c))
	if err != nil {
		return nil, err
	}
	return cfg.(*config.Local), nil
}

// writeSpec makes the spec file where there is none, with a key for the tenant of --key. The key is not kept.
func (u *up) writeSpec(path string) (key, note string, err error) {
	text, err := os.ReadFile(path)
	switch {
	case err == nil:
		note, err = u.checkSpec(path, text)
		return "", note, err
	case !errors.Is(err, fs.ErrNotExist):
		return "", "", fmt.Errorf("reading the spec: %w", err)
	}
	s := &spec.Spec{}
	if u.key != "" {
		if key, err = newKey(); err != nil {
			return "", "", err
		}
		s.Tenants = []spec.Tenant{{Name: u.key, Keys: []string{spec.HashKey(key)}}}
	}
	text = append([]byte("# `spillway config describe spec` explains every key. A change is in force a second after it is written.\n"), spec.Encode(s)...)
	if _, err := spec.DecodeAlone("--key", text); err != nil {
		return "", "", err
	}
	return key, "", os.WriteFile(path, text, 0o600)
}

// checkSpec reads the spec of an earlier run, which holds hashes of keys alone.
func (u *up) checkSpec(path string, text []byte) (note string, err error) {
	s, err := spec.DecodeAlone(path, text)
	if err != nil || u.key == "" {
		return "", err
	}
	if t := s.Tenant(u.key); t == nil || len(t.Keys)+len(t.TimedKeys) == 0 {
		return "", fmt.Errorf("%s is from an earlier run and has no key for tenant %q: add the hash that `spillway config key` prints, or remove the file", path, u.key)
	}
	return fmt.Sprintf("the key of tenant %s was printed by an earlier run; `spillway config key` makes another for %s", u.key, path), nil
}

// newKey draws an API key.
func newKey() (string, error) {
	var b [32]byte
	if _, err := rand.Read(b[:]); err != nil {
		return "", fmt.Errorf("drawing a key: %w", err)
	}
	return "sk-" + base64.RawURLEncoding.EncodeToString(b[:]), nil
}

// describe prints what a user needs besides the address.
func (u *up) describe(out io.Writer, specPath, key, note string) {
	if u.dir != "" {
		fmt.Fprintf(out, "  spec: %s (edit it to add tenants, limits and aliases)\n", specPath)
	}
	switch {
	case key != "":
		fmt.Fprintf(out, "  key of tenant %s, shown once: %s\n", u.key, key)
	case note != "":
		fmt.Fprintln(out, "  note:", note)
	case !loopback(u.listen):
		fmt.Fprintln(out, "  warning: no key is required: everybody who reaches this address can use the workers; --key NAME requires one")
	}
	fmt.Fprintf(out, "  status: %s status --workers\n", os.Args[0])
}

func loopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	ip := net.ParseIP(host)
	return err == nil && (host == "localhost" || ip != nil && ip.IsLoopback())
}

// reachable replaces an address that means every interface by one that can be dialled from this machine.
func reachable(addr string) string {
	host, port, err := net.SplitHostPort(addr)
	if ip := net.ParseIP(host); err == nil && ip != nil && ip.IsUnspecified() {
		return net.JoinHostPort("127.0.0.1", port)
	}
	return addr
}

// waitPoll is how often workers are looked at while some are not ready.
const waitPoll = 200 * time.Millisecond

// await reports each worker whenever its workerLine changes, until all are ready, and once the first model that is ready.
func (s *single) await(ctx context.Context, changed func(*admin.WorkerStatus), ready func(model string)) {
	last := map[string]string{}
	tick := time.NewTicker(waitPoll)
	defer tick.Stop()
	for said := false; ; {
		workers := s.zone.Status().Workers
		slices.SortFunc(workers, func(a, b admin.WorkerStatus) int { return strings.Compare(a.Name, b.Name) })
		waiting := false
		for i := range workers {
			w := &workers[i]
			if now := workerLine(w); now != last[w.Name] {
				last[w.Name] = now
				changed(w)
			}
			waiting = waiting || w.State != admin.StateReady
		}
		if model := firstReady(workers); model != "" && !said {
			said = true
			ready(model)
		}
		if !waiting {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// firstReady is a model that a ready worker has.
func firstReady(workers []admin.WorkerStatus) string {
	for i := range workers {
		if w := &workers[i]; w.State == admin.StateReady {
			for _, m := range w.Models {
				if w.ModelStates[m] == "" {
					return m
				}
			}
		}
	}
	return ""
}

// workerLine identifies what is printed of a worker: its state and the cause. Of the number of failed attempts it has only
// the digits, so that a worker that keeps failing is printed again after 10, 100 and 1000 attempts and not after each.
func workerLine(w *admin.WorkerStatus) string {
	cause := strings.TrimSuffix(w.Reason, " ("+plural(w.Attempts, "attempt")+")")
	return fmt.Sprintf("%s\x00%s\x00%d", w.State, cause, len(strconv.Itoa(w.Attempts)))
}

// keyHints replaces the YAML key in a cause's hint by the flag that sets it.
var keyHints = strings.NewReplacer("key: set api_key_file)", "key: set --api-key-file)", "key: check api_key_file)", "key: check --api-key-file)")

func printWorker(out io.Writer, w *admin.WorkerStatus) {
	if w.State == admin.StateReady {
		fmt.Fprintf(out, "  %s %s: ready, engine %s, models %s\n", w.Name, w.URL, w.Engine, orDash(strings.Join(w.Models, ", ")))
		return
	}
	why := strings.TrimPrefix(cmp.Or(w.Reason, w.State), admin.NotReady)
	fmt.Fprintf(out, "  %s %s: %s%s\n", w.Name, w.URL, admin.NotReady, keyHints.Replace(why))
}

func printTry(out io.Writer, base, key, model string) {
	auth := ""
	if key != "" {
		auth = ` -H "Authorization: Bearer ` + key + `"`
	}
	fmt.Fprintf(out, "  try it:\n    curl %s/v1/chat/completions%s -H 'Content-Type: application/json' -d '{\"model\":%q,\"messages\":[{\"role\":\"user\",\"content\":\"Hello\"}]}'\n", base, auth, model)
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
