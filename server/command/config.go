package command

import (
	"slices"
	"strings"
)

// Param is one setting as CONFIG shows it.
type Param struct {
	Name string        // lower case, as Redis calls it where Redis has it
	Get  func() string // the value now

	// Set checks a new value and returns what puts it into force, or an error
	// that says what is allowed. nil: it cannot be changed while running.
	Set func(value string) (apply func(), err error)
}

// Config is the settings that CONFIG GET and SET know, sorted by name. It is
// filled with Add before the first connection and only read from then on.
type Config struct {
	params []Param
}

// Add puts settings in; one of the same name is replaced.
func (c *Config) Add(params ...Param) {
	for _, p := range params {
		i, found := c.search(p.Name)
		if found {
			c.params[i] = p
			continue
		}
		c.params = slices.Insert(c.params, i, p)
	}
}

// AddFixed puts in a setting whose value never changes.
func (c *Config) AddFixed(name, value string) {
	c.Add(Param{Name: name, Get: func() string { return value }})
}

func (c *Config) search(name string) (int, bool) {
	return slices.BinarySearchFunc(c.params, name, func(p Param, name string) int {
		return strings.Compare(p.Name, name)
	})
}
