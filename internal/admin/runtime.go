package admin

import (
	"fmt"
	"os"
	"path/filepath"
)

// RuntimeDir is where the sockets of this user's nodes are found when nobody says otherwise: a folder of the user's own
// under $XDG_RUNTIME_DIR, or under the system's folder for temporary files where that is not set. The sockets are
// called ROLE-NAME.sock.
func RuntimeDir() string {
	if dir := os.Getenv("XDG_RUNTIME_DIR"); dir != "" {
		return filepath.Join(dir, "spillway")
	}
	return filepath.Join(os.TempDir(), fmt.Sprintf("spillway-%d", os.Getuid()))
}
