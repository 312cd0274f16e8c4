// The root of the module. The requirements are in VERSION.mod.
module ringmaster.dev/e2e/older

go 1.26.0
