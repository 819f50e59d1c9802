# Sourced by an install.sh: installs the package-lock.json of the folder $here into $folder, pinned,
# and holds the lock of $folder until the script ends.
mkdir -p "$folder"
exec 9>"$folder.lock"
flock 9 # others may install it at the same time

if ! cmp -s "$here/package-lock.json" "$folder/ok-package-lock.json"; then
    cp "$here/package.json" "$here/package-lock.json" "$folder"
    npm ci --prefix "$folder" --ignore-scripts --no-fund --no-audit --loglevel=error
    cp "$here/package-lock.json" "$folder/ok-package-lock.json"
fi
