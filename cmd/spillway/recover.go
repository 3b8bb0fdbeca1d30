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

func recoverCommand() *cobra.Command {
	var (
		file  string
		yes   bool
		parts bool
	)
	cmd := &cobra.Command{
		Use:   "recover -c FILE --yes",
		Short: "Make a stopped global node the only voter, when a majority is gone for good",
		Long: `Make a stopped global node the only voter of its cluster, with everything in its log, for when a majority is gone for
good. While they may come back, wait: answers go on without a majority. Choose the node whose log is the longest
("last" in ` + "`spillway status -o json`" + `), stop every other node that is left and wipe its dir, recover this one, start it, and
add the others anew with raft.join: true. Two nodes recovered apart are two clusters.

A damaged snapshot or log is refused. When it is all that is left, --salvage puts what is damaged aside, in the same dir,
and goes on with what is whole: changes after the damage are lost.`,
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
				return fmt.Errorf("%s is not a global node's", file)
			}
			if !yes {
				return fmt.Errorf("this makes %s the only voter and cannot be undone\nhint: stop every other global node, then repeat with --yes", c.Name)
			}
			certs, err := openCerts(c.TLS, nil)
			if err != nil {
				return err
			}
			var peers []consensus.Peer
			for id, addr := range c.Raft.Peers {
				peers = append(peers, consensus.Peer{ID: id, Addr: addr})
			}
			log := slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), &slog.HandlerOptions{Level: slog.LevelWarn}))
			s, err := consensus.Recover(global.Rules(consensus.Config{ID: c.Name, Dir: c.Dir, Advertise: c.Raft.Advertise, Peers: peers, Certs: certs, Log: log}), parts)
			if errors.Is(err, consensus.ErrNothingToRecover) {
				return fmt.Errorf("%w\nhint: is dir in %s the right one?", err, file)
			}
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s is the only voter now, with spec %d and plan %d as of log index %d\nnext: start it with `spillway global -c %s`, wipe the others' dirs, start them with raft.join: true, and `spillway members add` each\n",
				c.Name, s.SpecVersion, s.PlanEpoch, s.Index, file)
			return nil
		},
	}
	cmd.Flags().StringVarP(&file, "config", "c", "", "the node's config file")
	must(cmd.MarkFlagRequired("config"))
	cmd.Flags().BoolVar(&yes, "yes", false, "do it")
	cmd.Flags().BoolVar(&parts, "salvage", false, "put damaged parts of the state aside and go on without them")
	return cmd
}
