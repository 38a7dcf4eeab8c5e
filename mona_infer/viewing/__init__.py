"""Pictures of masks over scans."""
