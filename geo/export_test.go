package geo

import "github.com/maxmind/mmdbwriter/mmdbtype"

// Helpers for the tests of package geofiles, which reads databases into an Atlas.
var (
	WriteDatabase = writeDatabase
	SaveDatabase  = saveDatabase
	BadDatabases  = badDatabases
	CheckLocated  = checkLocated
	CityData      = cityData
)

// NewNetwork returns one line of a test database.
func NewNetwork(prefix string, data mmdbtype.Map) databaseNetwork {
	return databaseNetwork{prefix, data}
}
