package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/spillway-lb/spillway/consensus"
	"github.com/spillway-lb/spillway/internal/admin"
	"github.com/spillway-lb/spillway/internal/spec"
)

// maxSnapshotFile bounds what is read from a file, in bytes.
const maxSnapshotFile = 64 << 20

func snapshotCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "snapshot",
		Short:   "Save, look into or restore what the global nodes have agreed on",
		Example: "  spillway snapshot save state.snap\n  spillway snapshot inspect state.snap\n  spillway snapshot restore state.snap --yes",
		GroupID: "operate",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return errors.New("say save FILE, inspect FILE or restore FILE")
			}
			return fmt.Errorf("there is no snapshot %q\nhint: save FILE, inspect FILE or restore FILE", args[0])
		},
		RunE: func(*cobra.Command, []string) error { return nil },
	}
	cmd.AddCommand(snapshotSaveCommand(), snapshotInspectCommand(), snapshotRestoreCommand())
	return cmd
}

func snapshotSaveCommand() *cobra.Command {
	var to target
	cmd := &cobra.Command{
		Use:   "save FILE",
		Short: "Write a node's agreed state to a file",
		Long: `Write a node's agreed state to a file: the spec with its history, the plan and the drains. The file also holds the keys
that sign redirect tickets and the zone, so only its owner may read it.`,
		Example: "  spillway snapshot save state.snap",
		Args:    exactly("FILE", 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return to.call(cmd.Context(), func(ctx context.Context, c *admin.Client) error {
				a, err := c.Archive(ctx)
				if err != nil {
					return err
				}
				s, err := consensus.Contents(a.Data)
				if err != nil {
					return fmt.Errorf("what the node sent is not whole: %w", err)
				}
				if err := writeNew(args[0], a.Data); err != nil {
					return err
				}
				fmt.Fprintf(cmd.OutOrStdout(), "saved spec %d and %d drains as of log index %d to %s (%d bytes)\n", s.SpecVersion, len(s.Drains), s.Index, args[0], len(a.Data))
				return nil
			})
		},
	}
	to.flags(cmd)
	return cmd
}

// writeNew writes a file that nobody else may read, and never over another.
func writeNew(name string, data []byte) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, os.ErrExist) {
		return fmt.Errorf("%s is there already: choose another name, or remove it", name)
	}
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Sync(), f.Close())
}

func snapshotInspectCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "inspect FILE",
		Short:   "Say what a saved state holds, and whether it is whole",
		Example: "  spillway snapshot inspect state.snap",
		Args:    exactly("FILE", 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			data, err := readSnapshot(args[0])
			if err != nil {
				return err
			}
			s, err := consensus.Contents(data)
			if err != nil {
				return fmt.Errorf("%s: %w", args[0], err)
			}
			printState(cmd.OutOrStdout(), s)
			return nil
		},
	}
}

func readSnapshot(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxSnapshotFile))
}

func printState(w io.Writer, s *consensus.State) {
	fmt.Fprintf(w, "whole; as of log index %d, term %d\n", s.Index, s.Term)
	if sp, err := spec.Decode("spec", s.Spec); err == nil {
		fmt.Fprintf(w, "spec %d: zone %s, %d services, %d regions, %d models, %d tenants\n", s.SpecVersion, sp.Zone.Name, len(sp.Services), len(sp.Regions), len(sp.Models), len(sp.Tenants))
	} else {
		fmt.Fprintf(w, "spec %d cannot be read by this version\n", s.SpecVersion)
	}
	fmt.Fprintf(w, "plan %d, %d bytes\n", s.PlanEpoch, len(s.Plan))
	table(w, func(t io.Writer) {
		fmt.Fprintln(t, "SPEC\tAT\tBY\tBYTES")
		for _, e := range s.SpecHistory {
			fmt.Fprintf(t, "%d\t%s\t%s\t%d\n", e.Version, e.At.Format("2006-01-02 15:04:05Z07:00"), e.Actor, len(e.Body))
		}
	})
	if g := s.Signing; g != nil {
		fmt.Fprintf(w, "zone %s is signed by %d keys; %s since %s\n", g.Zone, len(g.Keys), g.Phase, g.Since.Format("2006-01-02 15:04:05Z07:00"))
	}
	for _, d := range s.Drains {
		fmt.Fprintf(w, "drained: %s%s%s\n", d.Path, until(d.Until), because(d.Reason, d.Actor))
	}
}

func snapshotRestoreCommand() *cobra.Command {
	var (
		to     target
		yes    bool
		reason string
	)
	cmd := &cobra.Command{
		Use:   "restore FILE --yes",
		Short: "Put a saved spec and its drains back in force",
		Long: `Put a saved spec and its drains back in force on all global nodes, in place of what is agreed now. The spec becomes a
new version, so that nothing goes backwards; the plan is made anew. Only the leader takes it: name its admin address.
It begins a new generation of the cluster, so gateways follow it however old the file is.`,
		Example: "  spillway snapshot restore state.snap --yes --server unix:///run/spillway/global-g1.sock",
		Args:    exactly("FILE", 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			data, err := readSnapshot(args[0])
			if err != nil {
				return err
			}
			s, err := consensus.Contents(data)
			if err != nil {
				return fmt.Errorf("%s: %w", args[0], err)
			}
			if !yes {
				printState(cmd.OutOrStdout(), s)
				return errors.New("this replaces the spec and the drains of the whole planet\nhint: repeat with --yes")
			}
			return to.call(cmd.Context(), func(ctx context.Context, c *admin.Client) error {
				a, err := c.Restore(ctx, admin.ArchiveRequest{Data: data, Reason: reason})
				if err != nil {
					return err
				}
				fmt.Fprintf(cmd.OutOrStdout(), "saved spec %d is in force again, as spec %d, with its %d drains\n", s.SpecVersion, a.Version, len(s.Drains))
				return nil
			})
		},
	}
	to.flags(cmd)
	cmd.Flags().BoolVar(&yes, "yes", false, "do it")
	cmd.Flags().StringVar(&reason, "reason", "", "why, for the audit")
	return cmd
}
