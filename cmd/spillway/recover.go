package main

import (
	"errors"
	"fmt"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/spillway-lb/spillway/consensus"
	"github.com/spillway-lb/spillway/global"
	"github.com/spillway-lb/spillway/internal/config"
)

func newRecoverCommand() *cobra.Command {
	var (
		file    string
		yes     bool
		salvage bool
	)
	cmd := &cobra.Command{
		Use:   "recover -c FILE --yes",
		Short: "Make a stopped global node the only voter after permanent loss of a majority",
		Long: `Make a stopped global node the only voter of its Raft cluster, with everything in its log, after permanent loss of a
majority. If the other nodes may come back, wait: DNS and redirects are served without a majority. Choose the node with
the longest log ("last" in ` + "`spillway status -o json`" + `), stop all other remaining nodes and delete their dirs, recover this one,
start it, and add the others again with raft.join: true. Recovering two nodes separately creates two clusters.

A damaged snapshot or log is refused. If no intact copy exists, --salvage renames the damaged parts within the dir and
uses the intact rest: changes after the damage are lost.`,
		Example: "  spillway recover -c global.yaml --yes",
		GroupID: "operate",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := expectRole(file, config.RoleGlobal); err != nil {
				return err
			}
			cfg, err := config.LoadFile(file)
			if err != nil {
				return err
			}
			c, ok := cfg.(*config.Global)
			if !ok {
				return fmt.Errorf("%s is not the config of a global node", file)
			}
			if !yes {
				return fmt.Errorf("this makes %s the only voter and cannot be undone\nhint: stop every other global node, then repeat with --yes", c.Name)
			}
			certs, err := openCerts(c.TLS, nil)
			if err != nil {
				return err
			}
			var peers []consensus.RaftPeer
			for id, addr := range c.Raft.Peers {
				peers = append(peers, consensus.RaftPeer{ID: id, Addr: addr})
			}
			log := slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), &slog.HandlerOptions{Level: slog.LevelWarn}))
			s, err := consensus.RecoverNode(global.WithStateRules(consensus.Config{ID: c.Name, Dir: c.Dir, Advertise: c.Raft.Advertise, Peers: peers, Certs: certs, Log: log}), salvage)
			if errors.Is(err, consensus.ErrNothingToRecover) {
				return fmt.Errorf("%w\nhint: check dir in %s", err, file)
			}
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s is the only voter now, with spec %d and plan %d as of log index %d\nnext: start it with `spillway global -c %s`, delete the dirs of the others, start them with raft.join: true, and `spillway members add` each\n",
				c.Name, s.SpecVersion, s.PlanEpoch, s.Index, file)
			return nil
		},
	}
	cmd.Flags().StringVarP(&file, "config", "c", "", "the node's config file")
	panicOnError(cmd.MarkFlagRequired("config"))
	cmd.Flags().BoolVar(&yes, "yes", false, "confirm")
	cmd.Flags().BoolVar(&salvage, "salvage", false, "set damaged parts of the state aside and continue without them")
	return cmd
}
