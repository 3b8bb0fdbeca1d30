package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/spillway-lb/spillway/consensus"
	"github.com/spillway-lb/spillway/internal/admin"
	"github.com/spillway-lb/spillway/internal/spec"
)

// maxSnapshotFileBytes bounds the size of a snapshot file, in bytes.
const maxSnapshotFileBytes = 64 << 20

func newSnapshotCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "snapshot",
		Short:   "Save, inspect or restore the replicated state of the global nodes",
		Example: "  spillway snapshot save state.snap\n  spillway snapshot inspect state.snap\n  spillway snapshot restore state.snap --yes",
		GroupID: "operate",
		Args: func(*cobra.Command, []string) error {
			return newUsageError("snapshot save|inspect|restore FILE", "")
		},
		RunE: func(*cobra.Command, []string) error { return nil },
	}
	cmd.AddCommand(newSnapshotSaveCommand(), newSnapshotInspectCommand(), newSnapshotRestoreCommand())
	return cmd
}

func newSnapshotSaveCommand() *cobra.Command {
	var to adminTarget
	cmd := &cobra.Command{
		Use:   "save FILE",
		Short: "Write the replicated state of a node to a file",
		Long: `Write the replicated state of a node to a file: the spec with its history, the plan and the drains. The file also contains
the keys that sign redirect tickets and the zone, and is readable only by its owner.`,
		Example: "  spillway snapshot save state.snap",
		Args:    requireArgs("snapshot save FILE", 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return to.callNode(cmd.Context(), func(ctx context.Context, c *admin.Client) error {
				a, err := c.GetArchive(ctx)
				if err != nil {
					return err
				}
				s, err := consensus.DecodeArchive(a.Data)
				if err != nil {
					return fmt.Errorf("the snapshot from the node is damaged: %w", err)
				}
				if err := writeNewFile(args[0], a.Data); err != nil {
					return err
				}
				fmt.Fprintf(cmd.OutOrStdout(), "saved spec %d and %d drains as of log index %d to %s (%d bytes)\n", s.SpecVersion, len(s.Drains), s.Index, args[0], len(a.Data))
				return nil
			})
		},
	}
	to.addFlags(cmd)
	return cmd
}

// writeNewFile writes a file that only its owner may read. It does not overwrite a file.
func writeNewFile(name string, data []byte) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, os.ErrExist) {
		return fmt.Errorf("%s exists: choose another name, or remove it", name)
	}
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Sync(), f.Close())
}

func newSnapshotInspectCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "inspect FILE",
		Short:   "Show the contents of a snapshot file and verify its checksum",
		Example: "  spillway snapshot inspect state.snap",
		Args:    requireArgs("snapshot inspect FILE", 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			data, err := readSnapshotFile(args[0])
			if err != nil {
				return err
			}
			s, err := consensus.DecodeArchive(data)
			if err != nil {
				return fmt.Errorf("%s: %w", args[0], err)
			}
			printClusterState(cmd.OutOrStdout(), s)
			return nil
		},
	}
}

func readSnapshotFile(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxSnapshotFileBytes))
}

func printClusterState(w io.Writer, s *consensus.State) {
	fmt.Fprintf(w, "intact; log index %d, term %d\n", s.Index, s.Term)
	if sp, err := spec.Decode("spec", s.Spec); err == nil {
		fmt.Fprintf(w, "spec %d: zone %s, %d services, %d regions, %d models, %d tenants\n", s.SpecVersion, sp.Zone.Name, len(sp.Services), len(sp.Regions), len(sp.Models), len(sp.Tenants))
	} else {
		fmt.Fprintf(w, "spec %d cannot be read by this version\n", s.SpecVersion)
	}
	fmt.Fprintf(w, "plan %d, %d bytes\n", s.PlanEpoch, len(s.Plan))
	writeTable(w, func(t io.Writer) {
		fmt.Fprintln(t, "SPEC\tAT\tBY\tBYTES")
		for _, e := range s.SpecHistory {
			fmt.Fprintf(t, "%d\t%s\t%s\t%d\n", e.Version, e.At.Format("2006-01-02 15:04:05Z07:00"), e.Actor, len(e.Body))
		}
	})
	if g := s.Signing; g != nil {
		fmt.Fprintf(w, "zone %s is signed with %d keys; %s since %s\n", g.Zone, len(g.Keys), g.Phase, g.PhaseSince.Format("2006-01-02 15:04:05Z07:00"))
	}
	for _, d := range s.Drains {
		over := ""
		if d.Over > 0 {
			over = fmt.Sprintf(", over %s from %s", d.Over, d.At.Local().Format(time.DateTime))
		}
		fmt.Fprintf(w, "drained: %s%s%s%s\n", d.Path, formatDrainEnd(d.Until), over, formatReasonAndActor(d.Reason, d.Actor))
	}
}

func newSnapshotRestoreCommand() *cobra.Command {
	var (
		to     adminTarget
		yes    bool
		reason string
	)
	cmd := &cobra.Command{
		Use:   "restore FILE --yes",
		Short: "Restore the spec and the drains of a snapshot",
		Long: `Replace the spec and the drains of all global nodes by those of a snapshot. The restored spec gets a new version number, so
that versions only increase; the plan is computed again. Only the leader accepts this command: give its admin address.
It starts a new generation of the cluster, so that gateways follow it even if the snapshot is older than their policy.`,
		Example: "  spillway snapshot restore state.snap --yes --server unix:///run/spillway/global-g1.sock",
		Args:    requireArgs("snapshot restore FILE", 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			data, err := readSnapshotFile(args[0])
			if err != nil {
				return err
			}
			s, err := consensus.DecodeArchive(data)
			if err != nil {
				return fmt.Errorf("%s: %w", args[0], err)
			}
			if !yes {
				printClusterState(cmd.OutOrStdout(), s)
				return errors.New("this replaces the spec and the drains of the whole fleet\nhint: repeat with --yes")
			}
			return to.callNode(cmd.Context(), func(ctx context.Context, c *admin.Client) error {
				a, err := c.RestoreArchive(ctx, admin.ArchiveRequest{Data: data, Reason: reason})
				if err != nil {
					return err
				}
				fmt.Fprintf(cmd.OutOrStdout(), "saved spec %d is in force again, as spec %d, with its %d drains\n", s.SpecVersion, a.Version, len(s.Drains))
				return nil
			})
		},
	}
	to.addFlags(cmd)
	cmd.Flags().BoolVar(&yes, "yes", false, "confirm")
	cmd.Flags().StringVar(&reason, "reason", "", "reason, for the audit log")
	return cmd
}
