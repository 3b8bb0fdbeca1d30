package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"github.com/spillway-lb/spillway/internal/identity"
	"github.com/spillway-lb/spillway/internal/relay"
	"github.com/spillway-lb/spillway/local/discover/enrol"
)

func registerCommand() *cobra.Command {
	var (
		cfg                   enrol.Config
		health, tokenFile, ca string
	)
	cmd := &cobra.Command{
		Use:   "register --local URL --name NAME --url URL --token-file FILE",
		Short: "Keep an engine registered with its zone, from beside it",
		Long: `Keep an engine registered with its zone, from beside it.

It waits until the engine's health page answers, registers with every --local, renews each at a third of its lease, and
signs off on SIGTERM or Ctrl-C: the engine then gets nothing new and finishes what it has. A local that cannot be
reached, or that refuses, is tried again. If this process is killed, the zone lets the engine go when the lease ends.

The instances need registration.listen, registration.allow and the token's hash: see ` + "`spillway config describe local`" + `.`,
		Example: `  spillway register --local https://10.0.1.11:7404 --local https://10.0.1.12:7404 --ca ca.pem \
      --name w1 --url http://10.0.0.7:8000 --gpu H100 --label rack=r7 --token-file worker.key`,
		GroupID: "run",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			token, err := readToken(tokenFile)
			if err != nil {
				return err
			}
			for _, l := range cfg.Locals {
				if strings.HasPrefix(l, "https:") && ca == "" {
					return fmt.Errorf("%s: write --ca FILE with the authority of the local instances' certificates", l)
				}
			}
			transport, err := localTransport(ca)
			if err != nil {
				return err
			}
			defer transport.CloseIdleConnections()
			cfg.Token, cfg.Transport, cfg.Say = token, transport, sayer(cmd.OutOrStdout())
			if health != "" {
				cfg.Health = strings.TrimRight(cfg.Registration.URL, "/") + "/" + strings.TrimLeft(health, "/")
			}
			client, err := enrol.New(cfg)
			if err != nil {
				return err
			}
			client.Run(cmd.Context())
			return nil
		},
	}
	f, r := cmd.Flags(), &cfg.Registration
	f.StringSliceVar(&cfg.Locals, "local", nil, "where a local instance takes registrations (registration.listen); name every instance of the zone")
	f.StringVar(&cfg.Name, "name", "", "the worker's name, unique in its zone")
	f.StringVar(&r.URL, "url", "", "where the local instances reach the engine")
	f.StringVar(&tokenFile, "token-file", "", "`FILE` with the token, the line that spillway config key prints as key")
	f.StringVar(&ca, "ca", "", "authority of the local instances' certificates, for https")
	f.StringVar(&health, "health", "/health", "the engine's page that answers 200 once it is up; empty does not wait")
	f.StringVar(&r.GPU, "gpu", "", "type and number of GPUs, such as H100 or H100x4")
	f.StringSliceVar(&r.Models, "model", nil, "models that it serves (default: it is asked)")
	f.StringVar(&r.Engine, "engine", "", "what it is, such as vllm (default: found out)")
	f.Float64Var(&r.Weight, "weight", 1, "share under policies that go by weight")
	f.StringVar(&r.Metrics, "metrics", "", "its metrics page at the same host, where that is not the engine's usual one")
	f.StringVar(&r.GPUMetrics, "gpu-metrics", "", "the DCGM exporter at the same host, such as http://10.0.0.7:9400/metrics")
	f.StringSliceVar(&r.KVEvents, "kv-events", nil, "where it publishes its cache events, tcp://host:port at the same host, one for each data-parallel rank")
	f.StringSliceVar(&r.KVReplay, "kv-replay", nil, "where it answers for missed ones, in the order of --kv-events")
	f.StringToStringVar(&r.Labels, "label", nil, "name=value, any number of them")
	for _, name := range []string{"local", "name", "url", "token-file"} {
		must(cmd.MarkFlagRequired(name))
	}
	return cmd
}

func readToken(file string) (string, error) {
	f, err := os.Open(file)
	if err != nil {
		return "", fmt.Errorf("reading the token: %w", err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, 4096))
	if err != nil {
		return "", fmt.Errorf("reading the token: %w", err)
	}
	token := strings.TrimSpace(string(b))
	if strings.HasPrefix(token, "sha256:") {
		return "", fmt.Errorf("%s holds a token's hash: that is for the local instances, put the key itself here", file)
	}
	if strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", fmt.Errorf("%s holds more than one word: put the key alone into it", file)
	}
	return token, nil
}

// localTransport reaches local instances. With an authority they must show that they are such.
func localTransport(ca string) (*http.Transport, error) {
	if ca == "" {
		return relay.NewTransport(nil), nil
	}
	tls, err := identity.Trust(ca, func(id identity.ID) error {
		if id.Role != identity.RoleLocal {
			return fmt.Errorf("%s is no local instance", id)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return relay.NewTransport(tls), nil
}

// sayer writes whole lines, whoever says them.
func sayer(w io.Writer) func(string) {
	var mu sync.Mutex
	return func(line string) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Fprintln(w, line)
	}
}
