// SPDX-License-Identifier: BSL-1.0
/// \file
/// The version, in one place: the build files read it from here.
#ifndef TOPSUM_VERSION_HPP
#define TOPSUM_VERSION_HPP

#define TOPSUM_VERSION_MAJOR 0
#define TOPSUM_VERSION_MINOR 1
#define TOPSUM_VERSION_PATCH 0

#endif
