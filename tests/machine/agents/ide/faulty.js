/* Which directory is open, the address of the page says; without it, that is unknown. */
({
  workspace: () => new URLSearchParams(location.search).get("folder"),
})
