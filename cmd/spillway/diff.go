package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/spillway-lb/spillway/internal/admin"
)

func newDiffCommand() *cobra.Command {
	var (
		to     adminTarget
		file   string
		output string
	)
	cmd := &cobra.Command{
		Use:   "diff -f spec.yaml",
		Short: "Compare a spec with the one in force, and exit with 1 if they differ",
		Long: `Compare a spec with the one in force, as apply --dry-run does: the changes, the clients that would move, and the effect on
the demand of the last 15 minutes. Nothing is applied. Exit codes:
  0  the specs are equal
  1  they differ
  2  the specs could not be compared, or a mistake in the file or the command line
  7  no node answers`,
		Example: "  spillway diff -f spec.yaml\n  spillway diff -f spec.yaml -o json",
		GroupID: "operate",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			a, err := compareSpec(cmd, &to, file)
			switch {
			case err != nil && exitCodeOf(err) == 1: // 1 means that the specs differ
				return &exitCodeError{err, exitUsage}
			case err != nil:
				return err
			case isStructured(output):
				err = printStructured(cmd.OutOrStdout(), output, a)
			case len(a.Changes) == 0:
				fmt.Fprintf(cmd.OutOrStdout(), "no changes: spec v%d is in force\n", a.Version)
			default:
				printApplyAnswer(cmd.OutOrStdout(), a)
			}
			if err == nil && len(a.Changes) > 0 {
				return errAlreadyReported
			}
			return err
		},
	}
	to.addFlags(cmd)
	cmd.Flags().StringVarP(&file, "file", "f", "", "the spec; - reads standard input")
	addOutputFlag(cmd, &output)
	panicOnError(cmd.MarkFlagRequired("file"))
	return cmd
}

func compareSpec(cmd *cobra.Command, to *adminTarget, file string) (a *admin.ApplyAnswer, err error) {
	text, err := readSpecFile(file, cmd.InOrStdin())
	if err != nil {
		return nil, err
	}
	if _, _, err := decodeSpec(file, text); err != nil {
		return nil, err
	}
	err = to.callNode(cmd.Context(), func(ctx context.Context, c *admin.Client) error {
		a, err = c.ApplySpec(ctx, admin.ApplyRequest{Name: file, Text: string(text), DryRun: true})
		return err
	})
	return a, err
}
