package platform

// Environ is a captured environment and where it came from.
type Environ struct {
	Vars   map[string]string
	Origin string // "login shell (bash -l -i)", "well-known directories", …
}
