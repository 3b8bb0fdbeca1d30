package drill

import (
	"embed"
	"fmt"
	"io/fs"
	"path"
	"strings"

	"github.com/spillway-lb/spillway/internal/config/strict"
)

//go:embed drills/*.txt
var catalogueFiles embed.FS

// LoadCatalogue returns the drills of the catalogue, in the order of their names.
func LoadCatalogue() (out []*DrillFile, err error) {
	entries, err := fs.ReadDir(catalogueFiles, "drills")
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		text, err := catalogueFiles.ReadFile(path.Join("drills", e.Name()))
		if err != nil {
			return nil, err
		}
		f, err := ParseFile(e.Name(), text)
		if err != nil {
			return nil, err
		}
		out = append(out, f)
	}
	return out, nil
}

// FindDrill returns the drill of a name in the catalogue.
func FindDrill(name string) (*DrillFile, error) {
	text, err := ReadDrillText(name)
	if err != nil {
		return nil, err
	}
	return ParseFile(name+".txt", text)
}

// ReadDrillText returns the file of a drill of the catalogue.
func ReadDrillText(name string) ([]byte, error) {
	if text, err := catalogueFiles.ReadFile("drills/" + name + ".txt"); err == nil {
		return text, nil
	}
	entries, err := fs.ReadDir(catalogueFiles, "drills")
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		names = append(names, strings.TrimSuffix(e.Name(), ".txt"))
	}
	return nil, fmt.Errorf("there is no drill %q in the catalogue\nhint: %s", name, strict.SuggestName(name, names, "drills"))
}
